"""export - writes a network of torchvision or transformers as the file that dptrain trains.

    python3 export.py resnet18 net.pt2                      of torchvision
    python3 export.py ~/models/gpt2 net.pt2 --length 256    of transformers: a folder or a name

The example batch of 7 is a size that occurs nowhere else in a network, so that its places in the
graph can be told from other sizes.  The network is exported in training mode; validation switches
that off.
"""
import argparse

import torch

BATCH = 7


def image_network(name, size, classes):
    import torchvision
    from torch.utils import _pytree
    from torchvision.models.googlenet import GoogLeNetOutputs
    from torchvision.models.inception import InceptionOutputs

    # Auxiliary outputs are in named tuples, which torch.export.save wants registered.
    for kind in (GoogLeNetOutputs, InceptionOutputs):
        _pytree._register_namedtuple(kind, serialized_type_name=kind.__name__)
    network = torchvision.models.get_model(name, num_classes=classes)
    return network, (torch.randn(BATCH, 3, size, size),), {}


def text_network(name, length):
    import transformers

    network = transformers.AutoModelForCausalLM.from_pretrained(name)
    ids = torch.zeros(BATCH, length, dtype=torch.long)
    return network, (), {"input_ids": ids, "use_cache": False}


def save(network, places, names, file):
    torch.export.save(torch.export.export(network.train(), places, names, strict=False), file)


def main():
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("network", help="a name of torchvision, or a model of transformers")
    options.add_argument("file", help="the file to write, such as net.pt2")
    options.add_argument("--size", type=int, default=224, help="pixels of an image's side")
    options.add_argument("--classes", type=int, default=1000)
    options.add_argument("--length", type=int, help="tokens of a sample: a network of transformers")
    given = options.parse_args()

    if given.length:
        call = text_network(given.network, given.length)
    else:
        call = image_network(given.network, given.size, given.classes)
    save(*call, given.file)


if __name__ == "__main__":
    main()
