#!/usr/bin/env python3
"""Writes airports.txt: every IATA code of an airport and of a city with several airports, a line per first letter.

usage: pip download airportsdata --no-deps && unzip airportsdata-*.whl && ./make_airports.py airportsdata/
"""
import csv
import itertools
import pathlib
import sys

source = pathlib.Path(sys.argv[1])
with open(source / "airports.csv", encoding="utf-8") as file:
    codes = {row["iata"] for row in csv.DictReader(file)}
with open(source / "iata_macs.csv", encoding="utf-8") as file:
    codes |= {row["City Code"] for row in csv.DictReader(file)}
known = sorted(code for code in codes if len(code) == 3 and code.isascii() and code.isalpha() and code.isupper())
lines = [" ".join(group) for _, group in itertools.groupby(known, key=lambda code: code[0])]
(pathlib.Path(__file__).parent / "airports.txt").write_text("\n".join(lines) + "\n")
