#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the demo model: a byte-level looped transformer in Ouro's layout (arXiv 2510.25741). A token id is a byte, 0 ends a document.

    train.py --data data --out out --minutes 45 --threads 2
    train.py --data data --out out --minutes 45 --threads 2 --resume

Writes OUT/config.json and OUT/model.safetensors (f16) for tl-convert, and OUT/state.pt for --resume; without
state.pt --resume continues from the weights alone. The learning rate's schedule spans the minutes of one call.

What is trained:
 * Every step draws a number of loops and trains the prediction after each of them, later ones with more weight. So the first
   loops already predict well (drafts at few loops are accepted) and the later ones improve on them, and a number of
   loops that was never drawn still works.
 * The exit gate is trained along with the model on the loss of each loop: the expected loss under its exit distribution, less a
   share of that distribution's entropy, so that it does not settle on one loop.
 * Matrices of the layers learn by Muon (orthogonalised momentum), everything else by Adam.
"""
import argparse
import json
import math
import pathlib
import struct
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SHAPE = {
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "vocab_size": 256,
    "total_ut_steps": 8,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 4096,
}
LOOPS = (2, 3, 4, 6, 8)
LOOP_SHARES = (0.12, 0.15, 0.25, 0.20, 0.28)  # deep draws are dear, but they keep the late loops from drifting
ADAM_RATE, MUON_RATE, MUON_MOMENTUM = 3e-3, 0.02, 0.95
GATE_WEIGHT, GATE_ENTROPY = 0.1, 0.05


# --- the model ----------------------------------------------------------------------------------


def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + SHAPE["rms_norm_eps"]) * weight


def rope_tables(length):
    """cos and sin [length][head_dim] for the half-split layout: channel j turns with channel j + head_dim/2."""
    size = SHAPE["head_dim"]
    frequencies = SHAPE["rope_theta"] ** (-torch.arange(0, size, 2).float() / size)
    angles = torch.outer(torch.arange(length).float(), frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotate(x, tables):
    cos, sin = tables
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def matrix(outputs, inputs):
    return nn.Parameter(torch.randn(outputs, inputs) * inputs**-0.5)


class Layer(nn.Module):
    """h += norm2(attention(norm1 h)); h += norm4(mlp(norm3 h))"""

    def __init__(self):
        super().__init__()
        hidden, ffn = SHAPE["hidden_size"], SHAPE["intermediate_size"]
        width = SHAPE["num_attention_heads"] * SHAPE["head_dim"]
        self.q, self.k, self.v = matrix(width, hidden), matrix(width, hidden), matrix(width, hidden)
        self.o = matrix(hidden, width)
        self.gate, self.up, self.down = matrix(ffn, hidden), matrix(ffn, hidden), matrix(hidden, ffn)
        # What a branch adds starts small, so that many loops do not drown the state.
        self.norm1, self.norm3 = nn.Parameter(torch.ones(hidden)), nn.Parameter(torch.ones(hidden))
        self.norm2, self.norm4 = nn.Parameter(torch.full((hidden,), 0.5)), nn.Parameter(torch.full((hidden,), 0.5))

    def attention(self, x, tables, mask):
        batch, length, _ = x.shape

        def heads(weight):
            return F.linear(x, weight).view(batch, length, -1, SHAPE["head_dim"]).transpose(1, 2)

        q, k, v = rotate(heads(self.q), tables), rotate(heads(self.k), tables), heads(self.v)
        scores = q @ k.transpose(-1, -2) * SHAPE["head_dim"] ** -0.5 + mask
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, -1)
        return F.linear(mixed, self.o)

    def mlp(self, x):
        return F.linear(F.silu(F.linear(x, self.gate)) * F.linear(x, self.up), self.down)

    def forward(self, h, tables, mask):
        h = h + rms_norm(self.attention(rms_norm(h, self.norm1), tables, mask), self.norm2)
        return h + rms_norm(self.mlp(rms_norm(h, self.norm3)), self.norm4)


class LoopedModel(nn.Module):
    def __init__(self):
        super().__init__()
        hidden, vocab = SHAPE["hidden_size"], SHAPE["vocab_size"]
        self.embedding = nn.Parameter(torch.randn(vocab, hidden))
        self.head = nn.Parameter(torch.randn(vocab, hidden) * 0.02)
        self.layers = nn.ModuleList(Layer() for _ in range(SHAPE["num_hidden_layers"]))
        self.norm = nn.Parameter(torch.ones(hidden))
        self.gate_weight = nn.Parameter(torch.zeros(1, hidden))
        self.gate_bias = nn.Parameter(torch.full((1,), -1.5))  # at first no loop is eager to leave

    def forward(self, ids, loops):
        """States after each loop, [loops][batch][length][hidden]; the final norm belongs to the loop."""
        length = ids.shape[1]
        tables = rope_tables(length)
        mask = torch.full((length, length), -math.inf).triu(1)
        h, states = self.embedding[ids], []
        for _ in range(loops):
            for layer in self.layers:
                h = layer(h, tables, mask)
            h = rms_norm(h, self.norm)
            states.append(h)
        return torch.stack(states)

    def checkpoint_names(self):
        """Ouro's names for the parameters."""
        names = {
            "model.embed_tokens.weight": self.embedding,
            "lm_head.weight": self.head,
            "model.norm.weight": self.norm,
            "model.early_exit_gate.weight": self.gate_weight,
            "model.early_exit_gate.bias": self.gate_bias,
        }
        for i, layer in enumerate(self.layers):
            for name, parameter in (
                ("self_attn.q_proj", layer.q),
                ("self_attn.k_proj", layer.k),
                ("self_attn.v_proj", layer.v),
                ("self_attn.o_proj", layer.o),
                ("mlp.gate_proj", layer.gate),
                ("mlp.up_proj", layer.up),
                ("mlp.down_proj", layer.down),
                ("input_layernorm", layer.norm1),
                ("input_layernorm_2", layer.norm2),
                ("post_attention_layernorm", layer.norm3),
                ("post_attention_layernorm_2", layer.norm4),
            ):
                names[f"model.layers.{i}.{name}.weight"] = parameter
        return names


# --- files --------------------------------------------------------------------------------------


def save_checkpoint(model, folder):
    """config.json and model.safetensors: header length, JSON header, f16 data."""
    config = {
        "architectures": ["OuroForCausalLM"],
        "model_type": "ouro",
        **SHAPE,
        "hidden_act": "silu",
        "early_exit_threshold": 1.0,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "torch_dtype": "float16",
    }
    header, blobs, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name, parameter in sorted(model.checkpoint_names().items()):
        values = parameter.detach().numpy().astype("<f2")
        header[name] = {"dtype": "F16", "shape": list(values.shape), "data_offsets": [offset, offset + values.nbytes]}
        offset += values.nbytes
        blobs.append(values.tobytes())
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = struct.pack("<Q", len(text)) + text + b"".join(blobs)
    for name, content in (("model.safetensors", data), ("config.json", json.dumps(config, indent=1).encode())):
        temporary = folder / (name + ".tmp")
        temporary.write_bytes(content)
        temporary.replace(folder / name)  # never a half-written checkpoint


def load_checkpoint(model, folder):
    data = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    with torch.no_grad():
        for name, parameter in model.checkpoint_names().items():
            begin, end = (8 + length + offset for offset in header[name]["data_offsets"])
            values = np.frombuffer(data[begin:end], dtype="<f2").astype(np.float32)
            parameter.copy_(torch.from_numpy(values).reshape(parameter.shape))


def read_bytes_as_ids(path):
    return torch.from_numpy(np.fromfile(path, dtype=np.uint8).astype(np.int64))


# --- training -----------------------------------------------------------------------------------


def orthogonalised(gradient):
    """Newton-Schulz iteration with Muon's coefficients (K. Jordan, 2024): singular values go near 1."""
    x = gradient / (gradient.norm() + 1e-7)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for _ in range(5):
        product = x @ x.T
        x = 3.4445 * x + (-4.7750 * product + 2.0315 * product @ product) @ x
    return x.T if tall else x


class Optimizer:
    def __init__(self, model):
        matrices = [p for layer in model.layers for p in layer.parameters() if p.dim() == 2]
        self.matrices = matrices
        self.momentum = [torch.zeros_like(p) for p in matrices]
        chosen = {id(p) for p in matrices}
        self.adam = torch.optim.Adam([p for p in model.parameters() if id(p) not in chosen], betas=(0.9, 0.95))

    def step(self, rate):
        """`rate` is a share of the full learning rates."""
        for group in self.adam.param_groups:
            group["lr"] = ADAM_RATE * rate
        self.adam.step()
        with torch.no_grad():
            for parameter, momentum in zip(self.matrices, self.momentum):
                momentum.mul_(MUON_MOMENTUM).add_(parameter.grad)
                update = orthogonalised(parameter.grad + MUON_MOMENTUM * momentum)
                size = max(1.0, parameter.shape[0] / parameter.shape[1]) ** 0.5
                parameter.mul_(1 - 0.01 * MUON_RATE * rate).add_(update, alpha=-MUON_RATE * rate * size)

    def state(self):
        return {"adam": self.adam.state_dict(), "momentum": self.momentum}

    def load(self, state):
        self.adam.load_state_dict(state["adam"])
        self.momentum = state["momentum"]


def losses(model, states, targets):
    """Cross entropy in nats of each loop's prediction, [loops][batch * length]."""
    logits = F.linear(states, model.head)
    loops = states.shape[0]
    flat = F.cross_entropy(logits.flatten(0, 2), targets.expand(loops, -1, -1).flatten(), reduction="none")
    return flat.view(loops, -1)


def exit_distribution(model, states):
    """Probability to leave after each loop, [loops][batch * length]; the last loop takes what is left."""
    gates = torch.sigmoid(F.linear(states, model.gate_weight, model.gate_bias)).flatten(1)
    staying = torch.cumprod(1 - gates, 0)
    leaving = torch.cat((gates[:1], gates[1:] * staying[:-1]))[:-1]
    return torch.cat((leaving, 1 - leaving.sum(0, keepdim=True))).clamp_min(1e-6)


def training_loss(model, ids, loops):
    """The loss to descend, and the part of it that is the model's own."""
    states = model(ids[:, :-1], loops)
    loss = losses(model, states, ids[:, 1:])
    weights = torch.linspace(0.4, 1.6, loops)
    weights[-1] += 1
    own = (loss.mean(1) * weights / weights.sum()).sum()
    # The gate looks at the states and must not change them.
    leaving = exit_distribution(model, states.detach())
    entropy = -(leaving * leaving.log()).sum(0).mean()
    gate = (leaving * loss.detach()).sum(0).mean() - GATE_ENTROPY * entropy
    return own + GATE_WEIGHT * gate, own


def windows(ids, count, length, generator):
    starts = torch.randint(len(ids) - length - 1, (count,), generator=generator)
    return torch.stack([ids[start : start + length + 1] for start in starts])


@torch.no_grad()
def evaluate(model, ids, count, length):
    """Bits per byte and agreement of the best byte with the last loop, after each loop, over fixed windows."""
    generator = torch.Generator().manual_seed(11)
    bits, agreement = 0, 0
    for _ in range(count):
        window = windows(ids, 1, length, generator)
        states = model(window[:, :-1], SHAPE["total_ut_steps"])
        best = F.linear(states, model.head).argmax(-1)
        bits = bits + losses(model, states, window[:, 1:]).mean(1) / math.log(2) / count
        agreement = agreement + (best == best[-1]).float().mean((1, 2)) / count
    return bits.tolist(), agreement.tolist()


def report(model, ids, count, length):
    bits, agreement = evaluate(model, ids, count, length)
    print("  held out, bits per byte: " + " ".join(f"{b:.3f}" for b in bits))
    print("  best byte as the last loop's: " + " ".join(f"{a:.3f}" for a in agreement), flush=True)


def rate_at(step, share_of_time):
    """Warm-up over 60 steps, full rate for a third of the time, then straight down."""
    falling = 1.0 if share_of_time < 0.35 else max(0.02, (1 - share_of_time) / 0.65)
    return min(1.0, (step + 1) / 60) * falling


def main():
    parser = argparse.ArgumentParser(description="trains the demo model")
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("data"), help="folder of train.bin and val.bin")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out"))
    parser.add_argument("--minutes", type=float, default=45.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--resume", action="store_true", help="continue from the state in --out")
    parser.add_argument("--batch", type=int, default=6)
    parser.add_argument("--length", type=int, default=256, help="bytes of a window")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report-every", type=float, default=5.0, metavar="MINUTES")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    train, held_out = (read_bytes_as_ids(args.data / name) for name in ("train.bin", "val.bin"))
    model = LoopedModel()
    optimizer = Optimizer(model)
    step = 0
    state_file = args.out / "state.pt"
    args.out.mkdir(parents=True, exist_ok=True)
    if args.resume and state_file.exists():
        state = torch.load(state_file)
        model.load_state_dict(state["model"])
        optimizer.load(state["optimizer"])
        step = state["step"]
    elif args.resume:
        load_checkpoint(model, args.out)
    print(f"{sum(p.numel() for p in model.parameters())} parameters, from step {step}", flush=True)

    def save():
        save_checkpoint(model, args.out)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state(), "step": step}, state_file)

    # Windows and loop counts of a resumed run are new ones, not those of the first run again.
    generator = torch.Generator().manual_seed(args.seed * 1000003 + step)
    start = reported = time.monotonic()
    first_step, smooth = step, None
    while (now := time.monotonic()) < start + 60 * args.minutes:
        share = (now - start) / (60 * args.minutes)
        loops = LOOPS[torch.multinomial(torch.tensor(LOOP_SHARES), 1, generator=generator).item()]
        loss, own = training_loss(model, windows(train, args.batch, args.length, generator), loops)
        model.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step(rate_at(step - first_step, share))
        step += 1
        bits = own.item() / math.log(2)
        smooth = bits if smooth is None else 0.98 * smooth + 0.02 * bits
        if now > reported + 60 * args.report_every:
            reported = now
            print(f"step {step}, {(now - start) / 60:.1f} min, training {smooth:.3f} bits per byte")
            report(model, held_out, 12, args.length)
            save()
    save()
    print(f"step {step}, done")
    report(model, held_out, 48, args.length)


if __name__ == "__main__":
    main()
