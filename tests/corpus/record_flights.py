"""Records answers of the fake flight providers (tests/outside/flight_fakes.py), and writes beside them what each one contains.

usage: record_flights.py FOLDER
"""
import gzip
import json
import pathlib
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "outside"))
from flight_fakes import SEATS_KEY, Flights  # noqa: E402

SEARCH = {"origin_airport": "FRA", "destination_airport": "JFK", "start_date": "2027-03-15"}
OFFERS = {"originLocationCode": "FRA", "destinationLocationCode": "JFK", "departureDate": "2027-03-15", "adults": "1"}
AWARD = {"date": "2027-03-15", "origin": "FRA", "destination": "JFK", "cabin": "business", "taxes": {"amount": "450.00", "currency": "USD"},
         "seats_left": 2, "airlines": ["LH"], "has_nonstop": True}
TRIP = {"cabin": "business", "stops": 0, "duration_minutes": 525, "flight_numbers": ["LH400"],
        "departure": {"airport": "FRA", "local_time": "2027-03-15T10:30:00"}, "arrival": {"airport": "JFK", "local_time": "2027-03-15T13:15:00"}}


class Recorder:
    def __init__(self, fakes):
        self.url = fakes.url

    def get(self, path, query, headers, data=None):
        """(status, body) of one request."""
        time.sleep(0.11)  # the fake of Amadeus refuses a second request within 100 ms
        query = "?" + urllib.parse.urlencode(query) if query else ""
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path + query, data, headers)) as answer:
                return answer.status, gzip.decompress(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def seats(self, key=SEATS_KEY, **more):
        return self.get("/partnerapi/search", {**SEARCH, **more}, {"partner-authorization": key})

    def token(self, secret="s/cret+"):
        form = {"grant_type": "client_credentials", "client_id": "client", "client_secret": secret}
        return self.get("/v1/security/oauth2/token", {}, {}, urllib.parse.urlencode(form).encode())

    def offers(self, token, cabin="BUSINESS"):
        return self.get("/v2/shopping/flight-offers", {**OFFERS, "travelClass": cabin}, {"authorization": f"Bearer {token}"})


def refusal(name, answer, retryable):
    status, body = answer
    try:
        return {"name": name, "status": status, "body": json.loads(body), "retryable": retryable}
    except ValueError:
        return {"name": name, "status": status, "body_text": body.decode(), "retryable": retryable}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    fakes = Flights()
    record = Recorder(fakes)
    wrong_client = refusal("wrong client", record.token("wrong"), False)
    token = record.token()[1]
    good = json.loads(token)["access_token"]
    awards = [{**AWARD, "availability_id": f"{source}-1", "program": source, "miles": miles, "nonstop_miles": miles}
              for source, miles in (("aeroplan", 85000), ("united", 90000))]
    cash = {"offer_id": "1", "price_total_all_travellers": {"amount": "795.39", "currency": "EUR"}, "price_first_traveller": "795.39", "travellers": 1,
            "seats_left": 9, "airline_code": "LH", "airline_name": "LUFTHANSA",
            "itineraries": [{"duration_minutes": 525, "stops": 0, "flight_numbers": ["LH400"], "cabins": ["BUSINESS"]}]}
    files = {
        "seatsaero_search.json": (record.seats(cabins="business")[1], {"page": {"count": 2, "has_more": False}, "offers": awards,
                                                                     "trips": [{**TRIP, "miles": miles} for miles in (85000, 90000)]}),
        "seatsaero_nothing.json": (record.seats(cabins="economy")[1], {"page": {"count": 0, "has_more": False}, "offers": [], "trips": []}),
        "seatsaero_errors.json": ([refusal("wrong key", record.seats("pro_wrong"), False)], {"per_entry": True}),
        "amadeus_token.json": (token, {"access_token": good, "expires_in": 1799}),
        "amadeus_offers.json": (record.offers(good)[1], {"offers": [cash]}),
        "amadeus_errors.json": ([wrong_client, refusal("old token", record.offers("token-0"), True),
                                 refusal("wrong cabin", record.offers(good, "SOFA"), False)], {"per_entry": True}),
    }
    for name, (content, _) in files.items():
        content = content if isinstance(content, list) else json.loads(content)
        (folder / name).write_text(json.dumps(content, indent=1) + "\n")
    index = {"files": [{"file": name, "expected": expected} for name, (_, expected) in files.items()]}
    (folder / "index.json").write_text(json.dumps(index, indent=1) + "\n")
    fakes.close()
    print(f"{len(files)} payloads recorded in {folder}")


main()
