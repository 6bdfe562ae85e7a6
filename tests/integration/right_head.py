# SPDX-License-Identifier: Apache-2.0
"""An MTP head that is right, and that has to know the prompt for it.

Patches a model of random weights in F32 (glm4moe). Its layers write nothing, except the attention of the last one.  That
attends to all tokens alike, so the logits depend on the latest token and on the mean of the whole text.  The head's layer is
the same one, and reads the embedding of its token.  Its logits are the model's, but for the first token, which it never
sees."""
from gguf_file import GgufFile

WRITERS = ("attn_output.weight", "ffn_down.weight", "ffn_down_exps.weight", "ffn_down_shexp.weight")
GAIN = 2.0  # of the values: the mean of the text weighs as much as the latest token
SHARP = 4.0  # of the logits: few tokens are likely, as in trained models


def make_right(path, n_layers, width):
    """n_layers: those of the file.  The last one is the head."""
    file = GgufFile(path)
    last, head = f"blk.{n_layers - 2}.", f"blk.{n_layers - 1}."
    new = {name: [0.0] * len(file.tensors[name]) for name in file.tensors if name.startswith("blk.") and name.endswith(WRITERS)}
    rows = file.tensors["token_embd.weight"]
    new["token_embd.weight"] = embeddings = []
    for at in range(0, len(rows), width):  # the norm of such a row is the row
        row = rows[at:at + width]
        scale = (sum(x * x for x in row) / width) ** -0.5
        embeddings += [x * scale for x in row]
    for layer in (last, head):
        new[layer + "attn_output.weight"] = file.tensors[last + "attn_output.weight"]
        new[layer + "attn_v.weight"] = [GAIN * x for x in file.tensors[last + "attn_v.weight"]]
        for name in (layer + "attn_q.weight", layer + "attn_q.bias", layer + "attn_v.bias"):
            if name in file.tensors:
                new[name] = [0.0] * len(file.tensors[name])
    ones = [layer + "attn_norm.weight" for layer in (last, head)] + ["output_norm.weight"]
    ones += [f"{head}nextn.{part}.weight" for part in ("enorm", "hnorm", "shared_head_norm")]
    for name in ones:
        if name in file.tensors:
            new[name] = [1.0] * len(file.tensors[name])
    new[f"{head}nextn.eh_proj.weight"] = [float(i == row) for row in range(width) for i in range(2 * width)]
    new["output.weight"] = [SHARP * x for x in file.tensors["output.weight"]]
    file.write_with_tensors(path, new)
