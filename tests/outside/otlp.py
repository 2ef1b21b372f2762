"""An OTLP receiver as an external program: protobuf over HTTP, decoded by the field numbers of opentelemetry-proto."""
import struct

from fakes import FakeEndpoint, FakeServer


def fields(message):
    """Yields (number, value) of a protobuf message; messages, texts and bytes are bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        elif kind == 2:
            size = varint()
            value = message[at:at + size]
            assert len(value) == size
            at += size
        else:
            size = {1: 8, 5: 4}[kind]
            [value] = struct.unpack("<Q" if size == 8 else "<I", message[at:at + size])
            at += size
        yield key >> 3, value


def every(message, number):
    return [value for found, value in fields(message) if found == number]


def any_value(message):
    [(kind, value)] = fields(message)
    return {1: lambda: value.decode(), 2: lambda: bool(value), 3: lambda: value - (1 << 64) * (value >> 63), 5: lambda: [any_value(v) for v in every(value, 1)]}[kind]()


def attributes(message, number):
    return {every(pair, 1)[0].decode(): any_value(every(pair, 2)[0]) for pair in every(message, number)}


class Collector(FakeServer):
    """Keeps the spans that come to /v1/traces, each a dict; `resource` is that of its process."""

    def __init__(self):
        self.spans = []

        class Endpoint(FakeEndpoint):
            def do_POST(self):
                raw = self.body()
                assert (self.path, self.headers["content-type"]) == ("/v1/traces", "application/x-protobuf"), self.path
                self.owner.note({"raw": raw, "headers": {k.lower(): v for k, v in self.headers.items()}})
                self.owner.receive(raw)
                self.answer(200, b"", kind="application/x-protobuf")

        super().__init__(Endpoint)

    def receive(self, raw):
        for resource_spans in every(raw, 1):
            resource = attributes(every(resource_spans, 1)[0], 1)
            for scope_spans in every(resource_spans, 2):
                for span in every(scope_spans, 2):
                    one = dict(fields(span))
                    with self.lock:
                        self.spans.append({
                            "trace": one[1].hex(), "id": one[2].hex(), "parent": one.get(4, b"").hex(), "name": one[5].decode(),
                            "start": one[7], "end": one[8], "attributes": attributes(span, 9), "resource": resource,
                            "failed": 15 in one and dict(fields(one[15])).get(3) == 2})

    def named(self, name):
        with self.lock:
            return [span for span in self.spans if span["name"] == name]
