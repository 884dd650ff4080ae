#!/usr/bin/env python3
"""torch_gpu_models - the PyTorch half of gpu_models.py: trains one network on one GPU for some
steps in bfloat16 (autocast), and prints one line of JSON.

    torch_gpu_models.py --case JSON --kind eager|compiled --steps N --device cuda|cpu

JSON is a case of gpu_models.py.  The script is as favourable to PyTorch as we know how.  One batch
lies ready on the device.  It uses channels_last, scaled_dot_product_attention, fused optimizers,
and TF32 for all that stays in float32.  cuDNN chooses its algorithms by timing.  Gradients are
written instead of added to zeros.  Nothing is read back in the timed part.  The timed steps end by
synchronising with the GPU, and begin after ten untimed ones.
"""
import argparse
import json
import time

import torch
from torch.nn import functional as F
from torch_networks import Gpt, resnet50


def make(case, device):
    """Model, optimizer, inputs and labels"""
    batch = case["batch"]
    if case["model"] == "gpt":
        sizes = {key: case[key] for key in ("layers", "heads", "width", "context", "vocab")}
        model = Gpt(**sizes).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95),
                                      weight_decay=0.1, fused=True)
        x = torch.randint(case["vocab"], (batch, case["context"]), device=device)
        return model, optimizer, x, torch.randint(case["vocab"], (x.numel(),), device=device)
    model = resnet50(case["classes"]).to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=case["lr"], momentum=0.9, weight_decay=1e-4,
                                fused=True)
    x = torch.randn(batch, 3, case["side"], case["side"], device=device)
    return (model, optimizer, x.contiguous(memory_format=torch.channels_last),
            torch.randint(case["classes"], (batch,), device=device))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", type=json.loads, required=True)
    parser.add_argument("--kind", choices=["eager", "compiled"], required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(1)
    model, optimizer, x, y = make(args.case, args.device)

    def loss_on(x, y):
        with torch.autocast(args.device, torch.bfloat16):
            logits = model(x)
        return F.cross_entropy(logits.float(), y)

    loss_of = torch.compile(loss_on) if args.kind == "compiled" else loss_on

    def train(steps):
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(x, y)
            loss.backward()
            optimizer.step()
        if args.device == "cuda":
            torch.cuda.synchronize()
        return loss

    train(min(10, args.steps))
    start = time.perf_counter()
    loss = train(args.steps).item()
    seconds = time.perf_counter() - start
    if not loss == loss:
        raise SystemExit("the loss is not a number")
    is_gpu = args.device == "cuda"
    print(json.dumps(dict(
        samples_per_second=args.steps * args.case["batch"] / seconds, loss=loss,
        mib=torch.cuda.max_memory_allocated() / 2**20 if is_gpu else 0,
        version=torch.__version__, cudnn=torch.backends.cudnn.version() if is_gpu else None,
        gpu=torch.cuda.get_device_name() if is_gpu else "none")), flush=True)


if __name__ == "__main__":
    main()
