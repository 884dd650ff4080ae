#!/usr/bin/env python3
"""conversations - makes conversations of a play, as data.format text reads them.

    python3 conversations.py input.txt conversations.jsonl

A speech is the user's message, and the next one is the assistant's answer.  The text is
tinyshakespeare's input.txt: "NAME:", lines, and an empty line.
"""
import json
import sys


def main(text, out):
    with open(text, encoding="utf-8") as file:
        speeches = [part.partition(":\n")[2].strip() for part in file.read().split("\n\n")]
    speeches = [speech for speech in speeches if speech]
    with open(out, "w", encoding="utf-8") as file:
        for said, answer in zip(speeches[::2], speeches[1::2]):
            json.dump({"messages": [{"role": "user", "content": said},
                                    {"role": "assistant", "content": answer}]}, file)
            file.write("\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
