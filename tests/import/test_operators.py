"""Test of docs/operating/operators.md: it has the operators of the tables by which networks are
read, as show_operators prints them.
"""
import difflib
import os
import subprocess
import sys

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                    "../../docs/operating/operators.md")


def main():
    shown = subprocess.run([sys.argv[1]], check=True, capture_output=True, text=True).stdout
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    if page == shown:
        return 0
    sys.stdout.writelines(difflib.unified_diff(page.splitlines(True), shown.splitlines(True),
                                               "docs/operating/operators.md", "the tables"))
    print(f"write it anew: {sys.argv[1]} > docs/operating/operators.md")
    return 1


if __name__ == "__main__":
    sys.exit(main())
