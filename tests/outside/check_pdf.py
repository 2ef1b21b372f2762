"""PDF files as users have them: files with text are read, the others are reported, and no file affects another."""
import json
import pathlib
import random
import subprocess
import zlib

from check_knowledge import search
from server import ADMIN, BINARY, Server


def pdf(*pages, trailer="", packed=True):
    """Pages of drawing instructions as a file, compressed like a real one."""
    kids = " ".join(f"{4 + 2 * at} 0 R" for at in range(len(pages)))
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", f"<< /Type /Pages /Count {len(pages)} /Kids [{kids}] >>".encode(),
               b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"]
    for at, page in enumerate(pages):
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F 3 0 R >> >> /Contents {5 + 2 * at} 0 R >>".encode())
        stream = zlib.compress(page) if packed else page
        kind = "/Filter /FlateDecode " if packed else ""
        objects.append(f"<< {kind}/Length {len(stream)} >>\nstream\n".encode() + stream + b"\nendstream")
    out, places = bytearray(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n"), []
    for at, body in enumerate(objects):
        places.append(len(out))
        out += f"{at + 1} 0 obj\n".encode() + body + b"\nendobj\n"
    start = len(out)
    out += f"xref\n0 {len(places) + 1}\n0000000000 65535 f \n".encode() + b"".join(f"{place:010} 00000 n \n".encode() for place in places)
    return bytes(out + f"trailer\n<< /Size {len(places) + 1} /Root 1 0 R {trailer} >>\nstartxref\n{start}\n%%EOF\n".encode())


def lines(*given):
    """Lines of 12 points from the top of the page, in the Windows encoding; an empty line leaves a gap."""
    drawn = [b"BT /F 12 Tf"]
    for at, line in enumerate(given):
        escaped = line.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)").encode("cp1252")
        drawn.append(f"1 0 0 1 72 {780 - 14 * at} Tm (".encode() + escaped + b") Tj")
    return b"\n".join(drawn + [b"ET"])


def check_pdf_files_are_read_and_bad_ones_are_skipped():
    server = Server()
    try:
        docs = pathlib.Path(server.folder.name, "docs")
        docs.mkdir()
        whole = pdf(lines("Zubuchbare Gepäckstücke kosten für Überseeflüge 60 €, wenn man sie vor-", "ab bucht. Am Schalter kostet es mehr."),
                    lines("Die zweite Seite handelt von Fahrrädern."))
        docs.joinpath("a-broken.pdf").write_bytes(b"%PDF-1.7\n" + random.Random(7).randbytes(5000) + b"\n%%EOF\n")
        docs.joinpath("b-whole.pdf").write_bytes(whole)
        docs.joinpath("c-cut.pdf").write_bytes(whole[:len(whole) * 2 // 3])
        docs.joinpath("d-picture.pdf").write_bytes(pdf(b"q 500 0 0 700 40 40 cm /Im0 Do Q"))
        locked = "/ID [<00><00>] /Encrypt << /Filter /Standard /V 1 /R 2 /Length 40 /P -4 /O <" + "41" * 32 + "> /U <" + "42" * 32 + "> >>"
        docs.joinpath("e-locked.pdf").write_bytes(pdf(lines("Geheim."), trailer=locked))
        # A few megabytes that expand beyond the limit.
        squeeze, blank = zlib.compressobj(1), b" " * (1 << 20)
        bomb = b"".join(squeeze.compress(blank) for _ in range(1100)) + squeeze.flush()
        swollen = pdf(bomb, packed=False).replace(f"<< /Length {len(bomb)} >>".encode(), f"<< /Length {len(bomb)} /Filter /FlateDecode >>".encode())
        docs.joinpath("f-bomb.pdf").write_bytes(swollen)
        docs.joinpath("g-numbers.pdf").write_bytes(pdf(lines("Seite 1 von 2"), lines("Seite 2 von 2")))
        docs.joinpath("z.md").write_text("# Tiere\n\nEin Hund darf mit an Bord.")
        env = {**server.env, "WERKRUF_SERVER": server.url, "WERKRUF_KEY": ADMIN}
        run = lambda: subprocess.run([BINARY, "knowledge", "add", "docs", "--json"], env=env, cwd=server.folder.name, capture_output=True, text=True)
        done = run()
        assert done.returncode == 1, done
        report = json.loads(done.stdout)
        assert report["accepted"] == 2, report
        for name, reason_text in [("a-broken", "damaged"), ("c-cut", "its end is missing"), ("d-picture", "ocrmypdf"), ("e-locked", "password"), ("f-bomb", "qpdf"), ("g-numbers", "ocrmypdf")]:
            reasons = [reason for reason in report["skipped"] if reason.startswith(f"docs/{name}.pdf: ")]
            assert len(reasons) == 1 and reason_text in reasons[0], (name, report["skipped"])
        assert len(report["skipped"]) == 6 and "panicked" not in done.stderr, done.stderr
        _, one, _ = server.call("GET", "/api/knowledge/documents/docs%2Fb-whole.pdf")
        first, second = "Zubuchbare Gepäckstücke kosten für Überseeflüge 60 €, wenn man sie vorab bucht. Am Schalter kostet es mehr.", "Die zweite Seite handelt von Fahrrädern."
        assert [chunk["content"] for chunk in one["content"]] == [f"{first}\n\n{second}"], one
        assert search(server, "Was kostet ein Gepaeckstueck?")["results"][0]["document_id"] == "docs/b-whole.pdf"
        docs.joinpath("f-bomb.pdf").unlink()
        again = json.loads(run().stdout)
        assert (again["accepted"], again["replaced"], again["unchanged"]) == (0, 0, 2), again
    finally:
        server.close()
