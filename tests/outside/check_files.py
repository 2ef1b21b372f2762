"""Files of every kind over HTTP and from the command line, read by the real `werkruf-reader` beside the server."""
import io
import json
import pathlib
import subprocess
import zipfile

from check_pdf import lines, pdf
from server import ADMIN, BINARY, Server

OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"


def packed(parts):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return out.getvalue()


def docx():
    body = ('<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>Hausordnung</w:t></w:r></w:p>'
            '<w:p><w:r><w:t>Fahrräder gehören in den Keller.</w:t></w:r></w:p>'
            '<w:tbl><w:tr><w:tc><w:p><w:r><w:t>Keller</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>offen bis 22 Uhr</w:t></w:r></w:p></w:tc></w:tr></w:tbl>')
    return packed({"word/document.xml": f'<w:document xmlns:w="w"><w:body>{body}</w:body></w:document>'})


def xlsx():
    relation = lambda kind, target: f'<Relationships xmlns="{PACKAGE}"><Relationship Id="r1" Type="{OFFICE}/{kind}" Target="{target}"/></Relationships>'
    rows = ('<row r="1"><c r="A1" t="inlineStr"><is><t>Artikel</t></is></c><c r="B1" t="inlineStr"><is><t>Preis</t></is></c></row>'
            '<row r="2"><c r="A2" t="inlineStr"><is><t>Schraube</t></is></c><c r="B2"><v>19.989999999999998</v></c><c r="C2" s="1"><v>45717</v></c></row>')
    return packed({
        "_rels/.rels": relation("officeDocument", "xl/workbook.xml"),
        "xl/workbook.xml": f'<workbook xmlns:r="{OFFICE}"><sheets><sheet name="Liste" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": relation("worksheet", "worksheets/sheet1.xml"),
        "xl/styles.xml": '<styleSheet><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs></styleSheet>',
        "xl/worksheets/sheet1.xml": f"<worksheet><sheetData>{rows}</sheetData></worksheet>",
    })


def price_list():
    """Six pages whose lines differ only in digits."""
    line = lambda page, at: f"Artikel {1000 + 10 * page + at} kostet {at},{page:02} EUR."
    pages = [lines(*[line(page, at // 2) if at % 2 == 0 else "" for at in range(20)]) for page in range(6)]
    return pdf(*pages), [line(page, at) for page in range(6) for at in range(10)]


def post(server, files, collection="default"):
    parts = [f'--cut\r\nContent-Disposition: form-data; name="collection"\r\n\r\n{collection}\r\n'.encode()]
    for name, content in files.items():
        parts.append(f'--cut\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode() + content + b"\r\n")
    return server.call("POST", "/api/knowledge/files", b"".join(parts) + b"--cut--\r\n", headers={"content-type": "multipart/form-data; boundary=cut"})


def check_files_of_every_kind_become_documents():
    # A Linux kernel without Landlock refuses files; the check then runs without the sandbox and says so.
    program = pathlib.Path(BINARY).with_name("werkruf-reader")
    checked = subprocess.run([program, "--check"], capture_output=True, text=True).stdout
    print(f"       werkruf-reader --check: {checked}", flush=True)
    server = Server() if checked == '"ready"' else Server(config='[knowledge]\nreader_sandbox = "off"\n', modules=())
    try:
        prices, wanted = price_list()
        files = {
            "regeln.html": "<title>Regeln</title><nav>Start</nav><p>Wenn a < b und c > d, gilt Zu&shy;schlag &copy; 5 €.</p>".encode(),
            "ordnung.docx": docx(), "liste.xlsx": xlsx(), "tabelle.csv": "Ort;Höhe\nKöln;53\n".encode("cp1252"),
            "brief.txt": "Grüße aus München".encode("utf-16-le"), "preise.pdf": prices, "bild.txt": b"\x89PNG\r\n\x1a\n\0\0", "kaputt.docx": b"PK\3\4",
        }
        status, answer, _ = post(server, files)
        assert status == 200, answer
        reasons = {file["name"]: file.get("reason") for file in answer["files"] if file["status"] == "failed"}
        assert set(reasons) == {"bild.txt", "kaputt.docx"} and "not text" in reasons["bild.txt"] and "DOCX" in reasons["kaputt.docx"], answer
        accepted = [file["document_id"] for file in answer["files"] if file["status"] == "accepted"]
        assert accepted == [name for name in files if name not in reasons], answer

        def read(name):
            _, row, _ = server.call("GET", f"/api/knowledge/documents/{name}")
            return row["title"], "\n\n".join(chunk["content"] for chunk in row["content"])

        assert read("regeln.html") == ("Regeln", "Wenn a < b und c > d, gilt Zuschlag © 5 €.")
        assert read("ordnung.docx") == ("Hausordnung", "Fahrräder gehören in den Keller.\n\n| Keller | offen bis 22 Uhr |")
        assert read("liste.xlsx") == ("liste", "| Artikel | Preis |\n| Schraube | 19.99 | 2025-03-01 |")
        assert read("tabelle.csv") == ("tabelle", "| Ort | Höhe |\n| Köln | 53 |")
        assert read("brief.txt") == ("brief", "Grüße aus München")
        found = read("preise.pdf")[1]
        assert [line for line in wanted if line not in found] == [], found
        # The command line reads the same files with the same program.
        folder = pathlib.Path(server.folder.name, "docs")
        folder.mkdir()
        for name, content in files.items():
            folder.joinpath(name).write_bytes(content)
        env = {**server.env, "WERKRUF_SERVER": server.url, "WERKRUF_KEY": ADMIN}
        run = lambda *paths: subprocess.run([BINARY, "knowledge", "add", *paths, "--collection", "cli", "--json"], env=env, cwd=server.folder.name,
                                            capture_output=True, text=True)
        done = run("docs")
        assert (done.returncode, json.loads(done.stdout)["accepted"], len(json.loads(done.stdout)["skipped"])) == (1, 6, 2), done
        done = run("docs/kaputt.docx", "docs/liste.xlsx")
        assert (done.returncode, json.loads(done.stdout)["unchanged"]) == (1, 1) and "docs/kaputt.docx" in done.stderr, done
    finally:
        server.close()
