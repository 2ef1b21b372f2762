#!/usr/bin/env python3
"""Writes sets of documents, questions and judgements for `werkruf knowledge eval`. Everything is generated, so the sets are free of rights.

Each language has 120 documents: the rule of a company for one thing (`thing`) and one act (`act`). Every document names another thing and another
act as well, so that single words do not decide. A question has one right document. The kinds of questions:

  exact        the words of the document
  inflected    the plural of the thing and another form of the verb
  compound     the parts of a German compound
  spelling     without accents, or with ae, oe, ue for umlauts
  typing       the words of the document with a typing error in each: two letters in the wrong order, one letter missing
  identifier   the number of the form
  half         the thing in the plural, and another word for the act; ten documents are about the thing
  synonym      other words for both; only vectors can find them

usage: make_set.py FOLDER     writes FOLDER/LANGUAGE-KIND/{corpus.jsonl, queries.jsonl, qrels.tsv}
"""
import json
import pathlib
import sys
import unicodedata

# A thing: singular, plural, synonym, and for German the parts of the compound. An act: the verb of the documents, another form, a synonym.
LANGUAGES = {
    "en": {
        "things": [
            ("projector", "projectors", "beamer"), ("coffee machine", "coffee machines", "espresso maker"),
            ("parking permit", "parking permits", "car park pass"), ("laptop", "laptops", "notebook computer"),
            ("meeting room", "meeting rooms", "conference hall"), ("window lock", "window locks", "pane bolt"),
            ("printer", "printers", "copying device"), ("delivery van", "delivery vans", "transporter"),
            ("headset", "headsets", "earphones"), ("invoice", "invoices", "bill to pay"),
            ("fire extinguisher", "fire extinguishers", "flame suppressor"), ("key card", "key cards", "access badge"),
        ],
        "acts": [
            ("repairs", "repairing", "mend"), ("orders", "ordering", "purchase"), ("cleans", "cleaning", "wash"), ("returns", "returning", "give back"),
            ("reserves", "reserving", "book"), ("inspects", "inspected", "examine"), ("replaces", "replacing", "exchange"),
            ("insures", "insured", "cover against damage"), ("labels", "labelling", "put a tag on"), ("stores", "storing", "keep in the depot"),
        ],
        "places": ["reception", "workshop", "office in Aachen", "head of the branch", "purchasing team", "night shift"],
        "text": "The {place} {act} the {thing} of every branch. Before anybody {act} a {thing}, a form with the number {code} is filled in. "
                "This takes {days} working days. Do not confuse it with the {other_thing}, and nobody {other_act} anything without asking.",
        "title": "Rule {number}",
        "question": "who is {act} the {thing}?", "plain": "{thing} {act}",
    },
    "de": {
        "things": [
            ("Kaffeemaschine", "Kaffeemaschinen", "Espressoautomat", "Maschine für Kaffee"), ("Parkausweis", "Parkausweise", "Stellplatzkarte", "Ausweis für den Park"),
            ("Türschloss", "Türschlösser", "Zugangssperre", "Schloss der Tür"), ("Besprechungsraum", "Besprechungsräume", "Konferenzzimmer", "Raum für die Besprechung"),
            ("Lieferfahrzeug", "Lieferfahrzeuge", "Transporter", "Fahrzeug zum Liefern"), ("Feuerlöscher", "Feuerlöscher", "Brandbekämpfungsgerät", "Löscher bei Feuer"),
            ("Schlüsselkarte", "Schlüsselkarten", "Zutrittschip", "Karte als Schlüssel"), ("Reisekostenabrechnung", "Reisekostenabrechnungen", "Spesenbericht", "Abrechnung der Reisekosten"),
            ("Bürostuhl", "Bürostühle", "Arbeitssessel", "Stuhl im Büro"), ("Etikettendrucker", "Etikettendrucker", "Aufkleberpresse", "Drucker für Etiketten"),
            ("Kühlschrank", "Kühlschränke", "Eisfach", "Schrank zum Kühlen"), ("Prüfgerät", "Prüfgeräte", "Messinstrument", "Gerät zum Prüfen"),
        ],
        "acts": [
            ("repariert", "reparieren", "in Ordnung bringen"), ("bestellt", "bestellen", "einkaufen"), ("reinigt", "reinigen", "säubern"), ("verleiht", "verleihen", "ausborgen"),
            ("reserviert", "reservieren", "vormerken"), ("kontrolliert", "kontrollieren", "durchsehen"), ("ersetzt", "ersetzen", "austauschen"),
            ("versichert", "versichern", "gegen Schäden absichern"), ("beschriftet", "beschriften", "mit einem Schild versehen"), ("lagert", "lagern", "aufbewahren"),
        ],
        "places": ["Empfang", "Hausmeister", "Betrieb in Aachen", "Leiter der Filiale", "Einkauf", "Nachtdienst"],
        "text": "Der {place} {act} das Gut {thing} in jeder Filiale. Bevor jemand ein Gut {thing} {act}, wird ein Formular mit der Nummer {code} ausgefüllt. "
                "Das dauert {days} Arbeitstage. Nicht zu verwechseln ist es mit dem Gut {other_thing}, und niemand {other_act} etwas, ohne zu fragen.",
        "title": "Regel {number}",
        "question": "Wer kann {thing} {act}?", "plain": "{thing} {act}",
    },
    "es": {
        "things": [
            ("proyector", "proyectores", "cañón de imagen"), ("cafetera", "cafeteras", "máquina de café"),
            ("permiso de aparcamiento", "permisos de aparcamiento", "autorización para estacionar"), ("ordenador portátil", "ordenadores portátiles", "computadora de viaje"),
            ("sala de reuniones", "salas de reuniones", "despacho de juntas"), ("cerradura", "cerraduras", "cerrojo"),
            ("impresora", "impresoras", "copiadora"), ("vehículo de reparto", "vehículos de reparto", "furgoneta"),
            ("teléfono", "teléfonos", "aparato para llamar"), ("factura", "facturas", "recibo de compra"),
            ("extintor", "extintores", "apagador de fuego"), ("tarjeta magnética", "tarjetas magnéticas", "credencial de acceso"),
        ],
        "acts": [
            ("repara", "reparar", "arreglar"), ("encarga", "encargar", "comprar"), ("limpia", "limpiar", "lavar"), ("presta", "prestar", "dejar por unos días"),
            ("reserva", "reservar", "apartar"), ("revisa", "revisar", "inspeccionar"), ("sustituye", "sustituir", "cambiar por otro"),
            ("asegura", "asegurar", "proteger contra daños"), ("etiqueta", "etiquetar", "marcar con un rótulo"), ("almacena", "almacenar", "guardar en el depósito"),
        ],
        "places": ["recepcionista", "conserje", "oficina de Lisboa", "responsable de la sucursal", "equipo de compras", "turno de noche"],
        "text": "En cada sucursal el {place} {act} el bien {thing}. Antes de que alguien {act} un bien {thing} se rellena un formulario con el número {code}. "
                "Tarda {days} días laborables. No se debe confundir con el bien {other_thing}, y nadie {other_act} nada sin preguntar.",
        "title": "Regla {number}",
        "question": "¿Quién puede {act} {thing}?", "plain": "{thing} {act}",
    },
}
UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue"})


def documents(words):
    """(thing, act, document) of one language."""
    things, acts, places = words["things"], words["acts"], words["places"]
    for t, thing in enumerate(things):
        for a, act in enumerate(acts):
            number = t * len(acts) + a
            # The steps are prime to the lengths of the lists, so that all combinations occur.
            other_thing, other_act = things[(t + 1 + (number * 5) % (len(things) - 1)) % len(things)], acts[(a + 1 + (number * 7) % (len(acts) - 1)) % len(acts)]
            code = f"{'FGHK'[number % 4]}{number % 7 + 1}-{1000 + number * 37}"
            text = words["text"].format(place=places[number % len(places)], thing=thing[0], act=act[0], code=code, days=2 + number % 5,
                                        other_thing=other_thing[0], other_act=other_act[0])
            yield thing, act, {"id": f"rule-{number}", "title": words["title"].format(number=number + 1), "text": text, "code": code}


def plain_spelling(language, text):
    """The text as somebody writes it without the keys for umlauts and accents."""
    text = text.translate(UMLAUTS) if language == "de" else text
    return "".join(letter for letter in unicodedata.normalize("NFD", text) if not unicodedata.combining(letter))


def mistyped(text):
    """The text, with the third and fourth letter of its longest word in the wrong order and the last but one missing."""
    word = max(text.split(" "), key=len)
    return text.replace(word, word[:2] + word[3] + word[2] + word[4:-2] + word[-1])


def questions(language, words, thing, act, document):
    """(kind, question) of one document."""
    yield "exact", words["plain"].format(thing=thing[0], act=act[0])
    yield "inflected", words["question"].format(thing=thing[1], act=act[1])
    yield "typing", words["plain"].format(thing=mistyped(thing[0]), act=mistyped(act[0]))
    yield "half", words["question"].format(thing=thing[1], act=act[2])
    yield "synonym", words["question"].format(thing=thing[2], act=act[2])
    yield "identifier", document["code"] if len(document["id"]) % 2 else document["code"].replace("-", " ")
    if language == "de":
        yield "compound", words["question"].format(thing=thing[3], act=act[1])
    spelled = plain_spelling(language, words["plain"].format(thing=thing[0], act=act[0]))
    if spelled != words["plain"].format(thing=thing[0], act=act[0]):
        yield "spelling", spelled


def main():
    root = pathlib.Path(sys.argv[1])
    for language, words in LANGUAGES.items():
        rows = list(documents(words))
        sets = {}
        for thing, act, document in rows:
            for kind, question in questions(language, words, thing, act, document):
                sets.setdefault(kind, []).append((f"{kind}-{document['id']}", question, document["id"]))
        for kind, asked in sets.items():
            folder = root / f"{language}-{kind}"
            folder.mkdir(parents=True, exist_ok=True)
            lines = lambda values: "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)  # noqa: E731
            (folder / "corpus.jsonl").write_text(lines({name: document[name] for name in ("id", "title", "text")} for _, _, document in rows))
            (folder / "queries.jsonl").write_text(lines({"id": name, "text": question} for name, question, _ in asked))
            (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(f"{name}\t{right}\t1\n" for name, _, right in asked))


main()
