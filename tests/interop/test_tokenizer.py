"""Test of tokenizer.json (common/tokenizer) beside the tokenizers library, token for token: on
tinyshakespeare, on sources in C and Python, on a text of many scripts, and on texts that are made
to be hard, by tokenizers that the library trains here, in the forms of GPT-2, Llama 3, Qwen,
DeepSeek, Llama 2, Gemma and others.  The way back is compared, too.

It needs a Python with tokenizers (find_torch.py), and is skipped (77) without one.
"""
import array
import glob
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

import find_torch

find_torch.need("tokenizers")

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,  # noqa: E402
                        pre_tokenizers, processors, trainers)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
TOKENIZE = os.environ["TOKENIZE"]
SPACE = "\u2581"

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+"
          r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?"
            r"[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]

# One sentence in scripts of several kinds: with and without spaces, cases, marks that combine,
# from right to left, outside the first plane.
WORLD = """The quick brown fox doesn't jump over 12,345.67 lazy dogs; we'LL see.
Der Zürcher Straßenbahnfahrer übt — „größtenteils“ — für 9,99 €.
Où est-ce qu'il a vu l'œuvre d'élève naïve ? Voilà !
Съешь же ещё этих мягких французских булок, да выпей чаю.
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.
نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر ومغلف بجلد أزرق ١٢٣
דג סקרן שט בים מאוכזב ולפתע מצא חברה
ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश १२३४
เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน ๑๒๓
我能吞下玻璃而不伤身体。天地玄黃，宇宙洪荒。三千五百
いろはにほへと ちりぬるを。カタカナとﾊﾝｶｸ。
키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다.
Pijamalı hasta yağız şoföre çabucak güvendi. İstanbul ıspanak
Do bạch kim rất quý nên sẽ dùng để lắp vô xương.
𝒜𝓁𝓁 𝟙𝟚𝟛 🇩🇪👩‍👩‍👧‍👦🤷🏽‍♀️ ½ Ⅻ ① ﬁﬂ Å Å é é ΐ
"""

HARD = [
    "", " ", "  ", "\n", "\t \n", "a", " a", "a ", "  a  b  ", "\r\n\r\n x", "'s 'S 'ſ don't DON'T",
    "\u00a0x\u2003y\u3000z\u0085w", "\u180ex \u180e", "a\u200db", "x\u0301y \u0301", "\0a\0\0b",
    "0123456789", "1 22 333 4444 55555", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "ab" * 500, " " * 300, "\n" * 100 + "end", "the" * 200 + " " + "theſ" * 40, "\u2581a \u2581 b",
    "<s>", " <s> ", "x<s>y", "<s><s> </s>\n", "<mask> a <mask>b c<mask>", "word words wordy word",
    "<|eot|>a<|eot|><|eot", "<|eot|><|eot|>", "e\u0301<|eot|>e\u0301 \uac00 \u1100\u1161",
    "<0x0A>\ufffd\U0010ffff\u0378", "Ünïcödé ünï", "\ufeffBOM", "\u2028\u2029",
]


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def sources(ending, most):
    """Sources of this repository."""
    names = sorted(glob.glob(os.path.join(ROOT, "common", "**", "*" + ending), recursive=True) +
                   glob.glob(os.path.join(ROOT, "tests", "**", "*" + ending), recursive=True))
    text = ""
    for name in names:
        text += read(name)
        if len(text) > most:
            break
    return text


def noise(seed, n):
    """Characters of all planes, and of few, so that pairs repeat."""
    rng = random.Random(seed)
    sets = ["ab c", "aeiou  \n'", "0123456789 ,.", "\u0300\u0301aou\u0308", "한글가각간", "\u2581 a",
            "<s>|eot mask", "\U0001f600\U0001f468\u200d"]
    out = []
    while len(out) < n:
        pick = rng.choice(sets + [None])
        for _ in range(rng.randint(1, 12)):
            code = rng.randrange(0x110000)
            out.append(rng.choice(pick) if pick else
                       chr(code if not 0xd800 <= code < 0xe000 else 0x41))
    return "".join(out)


DATA = os.environ.get("DPTRAIN_DATA", os.path.join(ROOT, "..", "shared", "data"))
SHAKESPEARE = os.path.join(DATA, "tinyshakespeare")


def shakespeare():
    names = sorted(glob.glob(os.path.join(SHAKESPEARE, "*.txt")))
    return "".join(read(name) for name in names)


def trained(tokenizer, vocab, special=(), alphabet=()):
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=list(special),
                                  initial_alphabet=list(alphabet), show_progress=False)
    text = (shakespeare() or sources(".c", 300000))[:300000] + WORLD * 20 + sources(".c", 100000)
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    return tokenizer


def byte_level(cuts, **model):
    t = Tokenizer(models.BPE(**model))
    t.pre_tokenizer = cuts
    t.decoder = decoders.ByteLevel()
    return trained(t, 3000, ["<|eot|>"], pre_tokenizers.ByteLevel.alphabet())


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def bytes_behind(*cuts):
    return pre_tokenizers.Sequence(
        [*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def gpt2():
    t = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return t


def gpt2_prefix():
    t = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True))
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    t.add_tokens([AddedToken("word", single_word=True), AddedToken("ünï", rstrip=True)])
    return t


def llama3():
    t = byte_level(bytes_behind(split(LLAMA3)))
    t.add_special_tokens(["<s>", "</s>"])
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<s> $A </s>",
                                      special_tokens=[("<s>", t.token_to_id("<s>")),
                                                      ("</s>", t.token_to_id("</s>"))])])
    made = json.loads(t.to_str())
    made["model"]["ignore_merges"] = True
    made["model"]["merges"] = made["model"]["merges"][::2]  # some tokens are reached as wholes only
    pairs = [("".join(pair), pair) for pair in made["model"]["merges"]]
    known = {text for text, _ in pairs} | {c for c in made["model"]["vocab"] if len(c) == 1}
    made["model"]["merges"] = [pair for _, pair in pairs if set(pair) <= known]
    return Tokenizer.from_str(json.dumps(made))


def qwen():
    t = byte_level(bytes_behind(split(QWEN)))
    t.normalizer = normalizers.NFC()
    t.add_tokens([AddedToken("é", normalized=True), AddedToken("<s>", normalized=False)])
    return t


def starcoder():
    return byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False)]))


def sentencepiece(**model):
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, **model))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    trained(t, 2500, ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)])
    return t


def llama2_of(t):
    t.pre_tokenizer = None
    t.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE),
                                         normalizers.Replace(" ", SPACE)])
    t.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(),
                                   decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A",
                                                     special_tokens=[("<s>", 1)])
    return t


def llama2():
    return llama2_of(sentencepiece(byte_fallback=True))


def llama2_unknown():
    """Without bytes: what is no token is unknown, and neighbours are one."""
    return llama2_of(sentencepiece(byte_fallback=False))


def llama2_inner():
    """With merges over the beginnings of words, so that the text may not be cut there."""
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    t.pre_tokenizer = pre_tokenizers.Split("\n", "isolated")
    t.normalizer = normalizers.Replace(" ", SPACE)
    return llama2_of(trained(t, 2500, ["<unk>", "<s>", "</s>"]))


def mistral():
    t = sentencepiece(byte_fallback=True)
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    t.decoder = decoders.Metaspace(prepend_scheme="first")
    return t


def metaspace():
    t = sentencepiece(byte_fallback=False)
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    t.decoder = decoders.Metaspace(prepend_scheme="always")
    return t


def gemma():
    t = llama2_of(sentencepiece(byte_fallback=True))
    t.normalizer = normalizers.Replace(" ", SPACE)
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(),
                                   decoders.Fuse()])
    return t


def lossy():
    """Characters without a token are dropped, since there is no unknown token."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.normalizer = normalizers.NFKC()
    return trained(t, 800)


def behaviors(behavior, invert):
    def make():
        t = Tokenizer(models.BPE())
        t.pre_tokenizer = split(r"\s+|[aeiou]", behavior, invert)
        t.normalizer = normalizers.NFD()
        return trained(t, 800)
    return make


FORMS = {
    "gpt2": gpt2, "gpt2_prefix": gpt2_prefix, "llama3": llama3, "qwen": qwen,
    "gpt4o": lambda: byte_level(bytes_behind(split(GPT4O))),
    "deepseek": lambda: byte_level(bytes_behind(*map(split, DEEPSEEK))),
    "starcoder": starcoder, "llama2": llama2, "llama2_unknown": llama2_unknown,
    "llama2_inner": llama2_inner, "mistral": mistral, "metaspace": metaspace, "gemma": gemma,
    "lossy": lossy,
}
for _behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
    FORMS[_behavior] = behaviors(_behavior, False)
    FORMS[_behavior + "_inverted"] = behaviors(_behavior, True)


def tokenize(path, how, data):
    done = subprocess.run([TOKENIZE, path, how], input=data, capture_output=True, check=False)
    if done.returncode:
        raise AssertionError(done.stderr.decode())
    return done.stdout


def numbers(data):
    return array.array("i", data).tolist()


class Tokenizers(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def compare(self, path, library, text, name):
        for how in ("bare", "special"):
            want = library.encode(text, add_special_tokens=how == "special").ids
            got = numbers(tokenize(path, how, text.encode()))
            if got != want:
                at = next((i for i, (g, w) in enumerate(zip(got, want)) if g != w),
                          min(len(got), len(want)))
                near = [library.id_to_token(i) for i in want[max(at - 3, 0):at + 4]]
                self.fail(f"{name}, {how}: token {at} of {len(want)} (we have {len(got)}), near "
                          f"{near}: we have {[library.id_to_token(i) for i in got[at:at + 4]]}")
        back = array.array("i", want).tobytes()
        for how, skip in (("decode", True), ("decode-special", False)):
            self.assertEqual(tokenize(path, how, back).decode(),
                             library.decode(want, skip_special_tokens=skip), f"{name}, {how}")

    def check(self, form, texts):
        path = os.path.join(self.folder.name, form + ".json")
        FORMS[form]().save(path)
        library = Tokenizer.from_file(path)
        for name, text in texts.items():
            self.compare(path, library, text, f"{form} on {name}")
        self.check_old_merges(form, path, texts["world"])

    def check_old_merges(self, form, path, text):
        """Merges as texts, where none has a space."""
        made = json.loads(read(path))
        if any(" " in side for pair in made["model"]["merges"] for side in pair):
            return
        want = tokenize(path, "bare", text.encode())
        made["model"]["merges"] = [" ".join(pair) for pair in made["model"]["merges"]]
        with open(path, "w", encoding="utf-8") as file:
            json.dump(made, file)
        self.assertEqual(tokenize(path, "bare", text.encode()), want, form)

    def test_forms(self):
        texts = {"world": WORLD * 3, "c": sources(".c", 200000), "python": sources(".py", 200000)}
        texts["shakespeare"] = shakespeare()[:400000]
        texts.update({f"hard {i}": text for i, text in enumerate(HARD)})
        texts.update({f"noise {seed}": noise(seed, 3000) for seed in range(4)})
        only = sys.argv[1:] if len(sys.argv) > 1 else FORMS
        for form in only:
            with self.subTest(form):
                self.check(form, texts)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
