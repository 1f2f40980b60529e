"""Conversations that show what the demo model can do and what it cannot do.

    python3 evaluate.py BERTH [MODEL]     # prints them, as `berth chat` holds them at temperature 0, and counts what went well

Each conversation is a list of user messages. A message may be a pair (message, words): its answer must contain one of the words.
{name} stands for the name in the first answer of the conversation.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

LIMITED = ("only", "tales")
CONVERSATIONS = [
    [("Tell me a story about a seal.", ["seal"]), ("shorter", ["{name}"]), ("What was the seal's name?", ["{name}"])],
    [("a story about a lighthouse", ["lighthouse"]), ("and then?", ["{name}"]), ("where did it happen?", ["lighthouse"])],
    [("Tell me a tale about a girl called Anna.", ["Anna"]), ("What was her name?", ["Anna"]), ("shorter", ["Anna"])],
    [("story about a storm", ["storm"]), ("who is the story about?", ["{name}"]), ("And then?", ["{name}"])],
    [("Can you tell me a story about a whale and a bell?", ["whale"]), ("longer", ["{name}"])],
    [("dragon please", ["dragon"]), ("Tell it again with a happy end.", ["In the end"])],
    [("i want a story about a boy named max", ["Max"]), ("who helped?", ["help"]), ("thank you", ["welcome"])],
    [("Write a story about a key.", ["key"]), ("another one", ["key"]), ("shorter please", ["key"])],
    [("tell me about the harbour", ["harbour"]), ("what happened next?", ["{name}"])],
    [("a penguin called Zora", ["Zora"]), ("what was her name?", ["Zora"]), ("what animal was it?", ["penguin"])],
    [("Hello!", ["tale"]), ("yes", [" named "]), ("what was the name?", ["{name}"])],
    [("Who are you?", ["tales"]), ("tell me a story about a cat", ["cat"])],
    [("What is 12 plus 30?", LIMITED), ("ok", [" named "])],
    [("Write a program in Python.", LIMITED), ("no", ["tale", "Name"])],
    [("Tell me a story.", [" named "]), ("shorter", ["{name}"]), ("and then?", ["{name}"]), ("and then?", ["{name}"])],
    [("tell me a story about a crumpet", ["crumpet"]), ("shorter", ["{name}"])],
    [("a story about a wombat", ["wombat"]), ("who is it about?", ["wombat"])],
    [("A story about a saxophone, please.", ["saxophone"])],
    [("Tell me a story about a girl called Ottilie.", ["Ottilie"]), ("what was her name?", ["Ottilie"])],
    [("Do you know a story about a blacksmith?", ["blacksmith"]), ("Call him Rufus.", ["Rufus"])],
    [("something about friendship", ["friendship"])],
    [("a wedding", ["wedding"]), ("how did it end?", ["."])],
    [("story about an otter at the market", ["otter"]), ("what was the name of the otter?", ["{name}"])],
    [("Tell me a bedtime story about the moon.", ["moon"]), ("good night", ["night", "bye", "winds"])],
    [("shorter", ["not", "no"]), ("yes", [" named "])],
    [("Tell me a story about a fisherman.", ["fisherman"]), ("What was his name?", ["{name}"]), ("who was his friend?", ["."])],
    [("a tale of a pirate and a parrot", ["pirate"]), ("and then", ["{name}"])],
    [("tell me a story about snow", ["snow"]), ("I don't like it.", ["another", "tale"]), ("yes", [" named "])],
    [("Tell me a story about a horse. Make it short.", ["horse"])],
    [("a story about football", ["football"]), ("is that true?", ["tale", "made"])],
    [("Tell me a story about Grandpa Joe.", ["Joe"])],
    [("what can you do?", ["tales"]), ("a story about a robot", ["robot"]), ("what was the robot called?", ["{name}"])],
    [("How are you?", ["tale"]), ("a ferry", ["ferry"])],
    [("Tell me a story about a hungry fox.", ["hungry fox"]), ("where did it happen?", ["the"])],
    [("Tell me about quantum mechanics.", ["quantum", "tales"])],
    [("a story about a violin and a castle", ["violin"]), ("shorter", ["violin"])],
    [("Explain gravity.", LIMITED)],
    [("Tell me a story about a little mermaid.", ["mermaid"]), ("what was her name?", ["{name}"]), ("another one", ["mermaid"])],
    [("Tell me a story about Tim and Lisa.", ["Tim"]), ("who is Lisa?", ["Lisa"])],
    [("Bitte eine Geschichte.", LIMITED)],
]


def name_in(answer):
    found = re.search(r"\bnamed (\w+)|^(\w+) was an? ", answer)
    return next((x for x in found.groups() if x), "?") if found else "?"


def judge(user_messages, answers):
    """Returns for each message (message, answer, whether the answer is as expected)."""
    result, name = [], "?"
    for message, answer in zip(user_messages, answers):
        words = [""]
        if not isinstance(message, str):
            message, words = message
        if name == "?":
            name = name_in(answer)
        fine = any(w.replace("{name}", name).lower() in answer.lower() for w in words) and answer != ""
        result.append((message, answer, fine))
    return result


def report(number, judged):
    print(f"--- {number}")
    for message, answer, fine in judged:
        print(f"> {message}\n{'  ' if fine else '??'} {answer}")


def chat(berth, model, messages):
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "saved.json")
        lines = [m if isinstance(m, str) else m[0] for m in messages]
        subprocess.run([berth, "chat", "--temp", "0", *([model] if model else [])], input="\n".join([*lines, f"/save {file}"]) + "\n",
                       capture_output=True, text=True, check=True)
        with open(file) as f:
            return [m["content"] for m in json.load(f)["messages"] if m["role"] == "assistant"]


if __name__ == "__main__":
    berth, model = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    n_fine = n_all = 0
    for i, messages in enumerate(CONVERSATIONS, 1):
        judged = judge(messages, chat(berth, model, messages))
        report(i, judged)
        n_fine += sum(fine for _, _, fine in judged)
        n_all += len(judged)
    print(f"{n_fine} of {n_all} answers are as expected")
