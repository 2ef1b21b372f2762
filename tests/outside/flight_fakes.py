"""Seats.aero and Amadeus as they really answer: gzip, quota headers, plain-text refusals, expiring tokens, a rate limit."""
import gzip
import json
import threading
import time
import urllib.parse

from fakes import FakeEndpoint, FakeServer

SEATS_KEY = "pro_outside"


def row(source, miles, query):
    trip = {"ID": f"{source}-trip", "Cabin": "business", "MileageCost": miles, "TotalTaxes": 45000, "Stops": 0, "TotalDuration": 525, "Carriers": "LH",
            "FlightNumbers": "LH400", "RemainingSeats": 2, "OriginAirport": query["origin_airport"], "DestinationAirport": query["destination_airport"],
            "DepartsAt": query["start_date"] + "T10:30:00Z", "ArrivesAt": query["start_date"] + "T13:15:00Z"}
    return {"ID": f"{source}-1", "Date": query["start_date"], "Source": source, "TaxesCurrency": "USD", "UpdatedAt": "2025-02-28T08:00:00Z",
            "Route": {"OriginAirport": query["origin_airport"], "DestinationAirport": query["destination_airport"], "Source": source},
            "JAvailable": True, "JMileageCost": str(miles), "JTotalTaxes": 45000, "JRemainingSeats": 2, "JAirlines": "LH", "JDirect": True,
            "JDirectMileageCost": miles, "JDirectTotalTaxes": 45000, "AvailabilityTrips": [trip]}


class Flights(FakeServer):
    """Both providers on one port. `seats` and `offers` may be replaced by a function(endpoint, query) that answers itself."""

    def __init__(self):
        fake = self
        self.searches, self.offer_queries, self.tokens, self.remaining = [], [], 0, 1000
        self.seats = self.offers = None
        self.good_token, self.last_offer, self.lock = None, 0.0, threading.Lock()

        class Endpoint(FakeEndpoint):
            def packed(self, payload, headers=None):
                body = gzip.compress(json.dumps(payload).encode())
                self.send_response(200)
                for name, value in {"content-type": "application/json", "content-encoding": "gzip", "content-length": len(body), **(headers or {})}.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(body)

            def refused(self, status, code, title):
                self.answer(status, {"errors": [{"status": status, "code": code, "title": title}]}, kind="application/vnd.amadeus+json")

            def do_POST(self):
                form = urllib.parse.parse_qs(self.body().decode())
                with fake.lock:
                    fake.tokens += 1
                    fake.good_token = f"token-{fake.tokens}"
                if form.get("client_secret") != ["s/cret+"]:
                    return self.answer(401, {"error": "invalid_client", "code": 38187, "title": "Invalid parameters"})
                self.packed({"type": "amadeusOAuth2Token", "access_token": fake.good_token, "expires_in": 1799, "token_type": "Bearer"})

            def do_GET(self):
                path, _, encoded = self.path.partition("?")
                query = dict(urllib.parse.parse_qsl(encoded))
                if path == "/partnerapi/search":
                    return self.seats_search(query)
                if path.startswith("/partnerapi/trips/"):
                    link = {"label": "Book", "link": "https://example.org/" + path.rpartition("/")[2], "primary": True}
                    return self.packed({"data": [], "booking_links": [link], "carriers": {}})
                if path == "/v2/shopping/flight-offers":
                    return self.flight_offers(query)
                self.answer(404, {})

            def seats_search(self, query):
                if self.headers.get("partner-authorization") != SEATS_KEY:
                    return self.answer(401, "bad_partner_key", kind="text/plain")
                with fake.lock:
                    fake.searches.append(query)
                    fake.remaining -= 1
                if fake.seats:
                    return fake.seats(self, query)
                rows = [row("aeroplan", 85000, query), row("united", 90000, query)] if query.get("cabins") == "business" else []
                self.packed({"data": rows, "count": len(rows), "hasMore": False, "cursor": 0},
                            {"cache-control": "public, max-age=60", "x-ratelimit-limit": 1000, "x-ratelimit-remaining": fake.remaining, "x-ratelimit-reset": 3600})

            def flight_offers(self, query):
                with fake.lock:
                    early = time.monotonic() - fake.last_offer < 0.1
                    fake.last_offer = time.monotonic()
                if early:
                    return self.refused(429, 38194, "Too many requests")
                if self.headers.get("authorization") != f"Bearer {fake.good_token}":
                    return self.refused(401, 38192, "Access token expired")
                if query.get("travelClass") not in ("ECONOMY", "PREMIUM_ECONOMY", "BUSINESS", "FIRST"):
                    return self.refused(400, 477, "INVALID FORMAT")
                with fake.lock:
                    fake.offer_queries.append(query)
                if fake.offers:
                    return fake.offers(self, query)
                segment = {"id": "1", "carrierCode": "LH", "number": "400", "numberOfStops": 0,
                           "departure": {"iataCode": query["originLocationCode"], "at": query["departureDate"] + "T10:30:00"},
                           "arrival": {"iataCode": query["destinationLocationCode"], "at": query["departureDate"] + "T13:15:00"}}
                offer = {"type": "flight-offer", "id": "1", "numberOfBookableSeats": 9, "validatingAirlineCodes": ["LH"],
                         "itineraries": [{"duration": "PT8H45M", "segments": [segment]}], "price": {"currency": "EUR", "grandTotal": "795.39"},
                         "travelerPricings": [{"price": {"total": "795.39"}, "fareDetailsBySegment": [{"segmentId": "1", "cabin": "BUSINESS"}]}]}
                self.packed({"meta": {"count": 1}, "data": [offer], "dictionaries": {"carriers": {"LH": "LUFTHANSA"}}})

        super().__init__(Endpoint)

    def env(self, **more):
        return {"SEATSAERO_API_KEY": SEATS_KEY, "SEATSAERO_BASE_URL": self.url + "/partnerapi", "AMADEUS_API_KEY": "client",
                "AMADEUS_API_SECRET": "s/cret+", "AMADEUS_BASE_URL": self.url, **more}
