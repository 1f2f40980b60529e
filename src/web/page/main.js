"use strict";
// main.js: takes a file, gives it to the worker, and shows the page that the worker returns.

(() => {
  const LIMIT_US = 1000000; // time limit of the search
  const $ = id => document.getElementById(id);
  const worker = new Worker(URL.createObjectURL(new Blob([$("worker").textContent], {type: "text/javascript"})));
  let id = 0, start = 0; // number and start of the last plan; answers to older ones are ignored

  function show(text, isBad = false) {
    $("status").textContent = text;
    $("status").classList.toggle("bad", isBad);
  }

  function open(file) {
    if (file) {
      show("planning " + file.name);
      start = performance.now();
      worker.postMessage({id: ++id, name: file.name, file, limit: LIMIT_US});
    }
  }

  worker.onmessage = ({data}) => {
    if (data.id !== id) {
      return;
    }
    if (data.error) {
      show(data.error, true);
      return;
    }
    const searched = data.us > 0 ? "planned in " + Number((data.us / 1000).toPrecision(2)) + " ms" : "the file's own offsets";
    show(searched + ", drawn after " + ((performance.now() - start) / 1000).toFixed(1) + " s. Drop another file to plan it.");
    $("drop").hidden = true;
    $("map").hidden = false;
    $("map").srcdoc = data.page;
  };
  worker.onerror = event => show("the planner cannot start: " + event.message, true);

  $("choose").onclick = () => $("file").click();
  $("file").onchange = () => {
    open($("file").files[0]);
    $("file").value = ""; // so that the same file can be chosen again
  };
  $("example").onclick = () => open(new File([$("csv").textContent], "transformer.csv"));
  // Files drop onto this page or onto the map, which is a document of its own.
  function takeDrops(target) {
    target.ondragover = event => {
      event.preventDefault();
      document.body.classList.add("over");
    };
    target.ondragleave = () => document.body.classList.remove("over");
    target.ondrop = event => {
      event.preventDefault();
      document.body.classList.remove("over");
      open(event.dataTransfer.files[0]);
    };
  }

  takeDrops(document);
  $("map").onload = () => {
    takeDrops($("map").contentDocument);
    $("map").focus(); // so that the keys of the map work
  };
})();
