// SPDX-License-Identifier: MIT
// client.mjs: uses node-llama-cpp as a Node program does, always with temperature 0.
//
//     node client.mjs run MODEL OUT.json      in a folder whose node_modules contains node-llama-cpp
//     node client.mjs compare A.json B.json   texts must be equal, vectors nearly equal
//     node client.mjs near A.json B.json      texts must start with the same words, vectors must be nearly equal
//     node client.mjs vectors A.json B.json   vectors must be nearly equal
//     node client.mjs libraries A.json DIR    all libraries of ggml must have been loaded from DIR
//     node client.mjs layers A.json           prints how many layers were not on the CPU
import fs from "node:fs";
import os from "node:os";
import path from "node:path";

const prompt = "Once upon a time";
const n_prompt = 200, n_batch = 64; // the long prompt takes four batches
const n_near = 20; // characters that must be equal if sums have another order
const vector_bound = 5e-3; // largest difference of unit vectors between libraries that round differently

const complete = async (lib, sequence, text, maxTokens) => {
    const completion = new lib.LlamaCompletion({contextSequence: sequence, autoDisposeSequence: false});
    const result = await completion.generateCompletion(text, {maxTokens, temperature: 0});
    completion.dispose();
    return result;
};

const withContext = async (model, options, use) => {
    const context = await model.createContext({contextSize: 256, ...options});
    const result = await use(context.getSequence(), context);
    await context.dispose();
    return result;
};

// A text that is longer than a batch: the tale itself, repeated.
const longPrompt = (model, tale) => {
    const once = model.tokenize(prompt + tale + "\n");
    return Array.from({length: n_prompt}, (_, i) => once[i % once.length]);
};

// Saves the state after the first half and loads it into another context. The second half must equal that of a context that
// continued.
const saveAndLoad = async (lib, model, file) => {
    let first;
    const whole = await withContext(model, {}, async (sequence) => {
        first = await complete(lib, sequence, prompt, 16);
        await sequence.saveStateToFile(file);
        return await complete(lib, sequence, prompt + first, 16);
    });
    const again = await withContext(model, {}, async (sequence) => {
        await sequence.loadStateFromFile(file, {acceptRisk: true});
        return await complete(lib, sequence, prompt + first, 16);
    });
    if (whole !== again) {
        throw new Error(`after loading a saved state: ${JSON.stringify(again)}, without: ${JSON.stringify(whole)}`);
    }
    return again;
};

const embed = async (model) => {
    const context = await model.createEmbeddingContext({contextSize: 256});
    const vector = Array.from((await context.getEmbeddingFor("The sky was pink and gold.")).vector);
    await context.dispose();
    const length = Math.hypot(...vector);
    return vector.map((x) => x / length);
};

const run = async (modelPath, out) => {
    const lib = await import("node-llama-cpp");
    const llama = await lib.getLlama({gpu: false, build: "never", skipDownload: true, maxThreads: 1,
        logLevel: lib.LlamaLogLevel.error});
    const model = await llama.loadModel({modelPath, gpuLayers: process.env.CLIENT_LAYERS}); // CLIENT_LAYERS, or the library decides
    const result = {};
    result.text = await withContext(model, {}, (sequence) => complete(lib, sequence, prompt, 120));
    const long = longPrompt(model, result.text);
    result.batches = await withContext(model, {batchSize: n_batch}, (sequence) => complete(lib, sequence, long, 40));
    result.state = await saveAndLoad(lib, model, path.join(os.tmpdir(), `client-state-${process.pid}.bin`));
    result.parallel = await Promise.all(["One morning", "The boat"].map((text) =>
        withContext(model, {}, (sequence) => complete(lib, sequence, text, 40))));
    result.vector = await embed(model);
    result.layers = model.gpuLayers; // on devices other than the CPU
    // The files from which ggml's libraries were loaded.
    result.libraries = [...new Set(fs.readFileSync("/proc/self/maps", "utf8").match(/\/\S*\/libggml\S*/g))];
    await model.dispose();
    await llama.dispose();
    fs.rmSync(path.join(os.tmpdir(), `client-state-${process.pid}.bin`), {force: true});
    fs.writeFileSync(out, JSON.stringify(result));
};

const compare = (pathA, pathB, nChars) => {
    const [a, b] = [pathA, pathB].map((file) => JSON.parse(fs.readFileSync(file, "utf8")));
    const largest = Math.max(...a.vector.map((x, i) => Math.abs(x - b.vector[i])));
    const begin = (value) => JSON.stringify(value, (_, text) => typeof text === "string" ? text.slice(0, nChars) : text);
    const differing = ["text", "batches", "state", "parallel"].filter((key) => begin(a[key]) !== begin(b[key]));
    for (const key of differing) {
        console.log(`${key}:\n  ${JSON.stringify(a[key])}\n  ${JSON.stringify(b[key])}`);
    }
    const same = differing.length === 0 && a.text.length > 0 && a.vector.length === b.vector.length && largest <= vector_bound;
    console.log(`${same ? "same" : "DIFFERENT"}: ${a.text.length} characters, vectors differ by ${largest.toExponential(1)}`);
    return same ? 0 : 1;
};

// Checks that every ggml library of a run is in a folder.
const libraries = (file, folder) => {
    const paths = JSON.parse(fs.readFileSync(file, "utf8")).libraries;
    const others = paths.filter((library) => !library.startsWith(fs.realpathSync(folder)));
    console.log(others.length === 0 ? `${paths.length} libraries, all from this folder` : `from other folders: ${others.join(" ")}`);
    return paths.length > 0 && others.length === 0 ? 0 : 1;
};

const [command, first, second] = process.argv.slice(2);
if (command === "compare") {
    process.exitCode = compare(first, second);
} else if (command === "near") {
    process.exitCode = compare(first, second, n_near);
} else if (command === "vectors") {
    process.exitCode = compare(first, second, 0);
} else if (command === "libraries") {
    process.exitCode = libraries(first, second);
} else if (command === "layers") {
    console.log(JSON.parse(fs.readFileSync(first, "utf8")).layers);
} else {
    await run(first, second);
}
