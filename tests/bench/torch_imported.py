"""torch_imported - PyTorch's side of imported.py: exports a network and writes its samples, or
trains it and prints a line of JSON.

    torch_imported.py FOLDER NETWORK export|eager|compiled PRECISION BATCH STEPS [--tiny]
"""
import json
import os
import resource
import statistics
import sys
import time

import numpy as np
import torch
import torchvision
import transformers

SAMPLES = 64
# Networks of tokens; all have 256 a sample.
VOCABULARY = {"llama": 32000, "folder": 32000, "gpt2": 4096, "gpt2-124m": 50257}


def network_of(name, tiny):
    torch.manual_seed(0)
    if name in ("gpt2", "gpt2-124m"):
        width, layers = (48, 1) if tiny else (384, 6) if name == "gpt2" else (768, 12)
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(
            n_layer=layers, n_head=12 if width == 768 else 6, n_embd=width, n_positions=256,
            vocab_size=classes_of(name, tiny), resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
            bos_token_id=1, eos_token_id=2))
    if name in ("llama", "folder"):
        width, vocab = (48, 64) if tiny else (288, 32000)
        layers = 1 if tiny else 8 if name == "folder" else 6
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(
            hidden_size=width, num_hidden_layers=layers, num_attention_heads=6,
            num_key_value_heads=6, intermediate_size=768, vocab_size=vocab,
            max_position_embeddings=256, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2,
            pad_token_id=None))
    if name == "vit":
        return torchvision.models.VisionTransformer(
            image_size=side_of(tiny), patch_size=16, num_layers=1 if tiny else 12, num_heads=6,
            hidden_dim=48 if tiny else 384, mlp_dim=1536, num_classes=classes_of(name, tiny))
    if tiny or name == "resnet18":
        return torchvision.models.resnet18(num_classes=classes_of(name, tiny))
    return torchvision.models.resnet50()


def side_of(tiny):
    return 32 if tiny else 224


def classes_of(name, tiny):
    if name in VOCABULARY:
        return 64 if tiny else VOCABULARY[name]
    return 10 if tiny else 1000


def write_samples(folder, name, tiny):
    rng = np.random.default_rng(0)
    classes, length, side = classes_of(name, tiny), 16 if tiny else 256, side_of(tiny)
    shape = (SAMPLES, length) if name in VOCABULARY else (SAMPLES,)
    labels = rng.integers(0, classes, shape)
    labels.flat[0] = classes - 1  # the data tell how many classes there are
    images = rng.integers(0, 256, (SAMPLES, side, side, 3), dtype=np.uint8)
    tokens = rng.integers(0, classes, shape)
    np.save(os.path.join(folder, "x.npy"), tokens if name in VOCABULARY else images)
    np.save(os.path.join(folder, "y.npy"), labels)
    if name in VOCABULARY:  # the same for an architecture of ours, with one token more
        np.append(tokens, classes - 1).astype(np.uint16).tofile(os.path.join(folder, "train.bin"))


def read_samples(folder, name):
    x, y = (torch.from_numpy(np.load(os.path.join(folder, f))) for f in ("x.npy", "y.npy"))
    if name not in VOCABULARY:
        x = (x.permute(0, 3, 1, 2).float() / 255).contiguous(memory_format=torch.channels_last)
    return x, y


def export(folder, name, tiny):
    write_samples(folder, name, tiny)
    if name == "folder":
        network_of(name, tiny).save_pretrained(os.path.join(folder, "net"))
        return
    x = read_samples(folder, name)[0][:3]
    more = {"input_ids": x, "use_cache": False} if name in VOCABULARY else {}
    program = torch.export.export(network_of(name, tiny).train(), () if more else (x,), more,
                                  strict=False)
    torch.export.save(program, os.path.join(folder, "net.pt2"))


def loss_of(name, network, x, y):
    if name in VOCABULARY:
        return torch.nn.functional.cross_entropy(
            network(input_ids=x, use_cache=False).logits.flatten(0, 1), y.flatten())
    return torch.nn.functional.cross_entropy(network(x), y)


def train(folder, name, mode, precision, batch, steps, tiny):
    network = network_of(name, tiny).train()
    if name not in VOCABULARY:
        network = network.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, fused=True)
    loss = torch.compile(loss_of) if mode == "compiled" else loss_of
    x, y = read_samples(folder, name)
    wall, cpu = [], []
    for step in range(steps):
        at = step * batch % (SAMPLES - batch + 1)
        start = time.perf_counter(), time.process_time()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            value = loss(name, network, x[at:at + batch], y[at:at + batch])
        value.backward()
        optimizer.step()
        wall.append((time.perf_counter() - start[0]) * 1e3)
        cpu.append((time.process_time() - start[1]) * 1e3)
    print(json.dumps({"ms": statistics.median(wall), "cpu_ms": statistics.median(cpu),
                      "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def main():
    folder, name, mode, precision, batch, steps = sys.argv[1:7]
    torch.set_num_threads(1)
    if mode == "export":
        export(folder, name, "--tiny" in sys.argv)
    else:
        train(folder, name, mode, precision, int(batch), int(steps), "--tiny" in sys.argv)


if __name__ == "__main__":
    main()
