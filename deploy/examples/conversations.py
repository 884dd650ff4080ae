#!/usr/bin/env python3
"""conversations - makes conversations of a play, as data.format text reads them.

    python3 conversations.py input.txt conversations.jsonl
    python3 conversations.py --pairs input.txt pairs.jsonl

A speech is the user's message, and the next one is the assistant's answer.  With --pairs that is
the chosen answer, and a speech of half a play away is the rejected one (model.loss: dpo).  The text
is tinyshakespeare's input.txt: "NAME:", lines, and an empty line.
"""
import argparse
import json


def message(role, text):
    return [{"role": role, "content": text}]


def main():
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--pairs", action="store_true")
    options.add_argument("text")
    options.add_argument("out")
    given = options.parse_args()

    with open(given.text, encoding="utf-8") as file:
        speeches = [part.partition(":\n")[2].strip() for part in file.read().split("\n\n")]
    speeches = [speech for speech in speeches if speech]
    questions, answers = speeches[:len(speeches) // 2 * 2:2], speeches[1::2]
    half = len(answers) // 2
    with open(given.out, "w", encoding="utf-8") as file:
        for said, answer, other in zip(questions, answers, answers[half:] + answers[:half]):
            user, chosen = message("user", said), message("assistant", answer)
            json.dump({"prompt": user, "chosen": chosen, "rejected": message("assistant", other)}
                      if given.pairs else {"messages": user + chosen}, file)
            file.write("\n")


if __name__ == "__main__":
    main()
