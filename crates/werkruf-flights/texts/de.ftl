# The texts of the module `flights` for users in German. All three files have the same keys and variables; a test compares them.

flights-miles = { $miles } Meilen + { $taxes }
flights-taxes-unknown = Steuern unbekannt
flights-sandbox = Beispieldaten: Es ist keine Flugsuche eingerichtet, diese Flüge sind erfunden.
flights-awards = Prämienflüge { $from } → { $to } am { $day } ({ $cabin }):
flights-awards-return = Prämienflüge zurück { $from } → { $to } am { $day } ({ $cabin }):
flights-cash = Flüge gegen Geld { $from } → { $to } am { $day } ({ $cabin }):
flights-none = Keine Flüge gefunden: { $from } → { $to } am { $day } ({ $cabin }).
flights-cabin-economy = Economy
flights-cabin-premium_economy = Premium Economy
flights-cabin-business = Business
flights-cabin-first = First
flights-nonstop = nonstop
flights-stops = { $count ->
    [one] 1 Stopp
   *[other] { $count } Stopps
}
flights-seats = { $count ->
    [one] noch 1 Platz
   *[other] noch { $count } Plätze
}
flights-total = { $price } gesamt für { $count } Reisende
flights-also = auch als { $numbers } verkauft
flights-unchecked = Höchstbetrag der Steuern nicht prüfbar
flights-missing-provider = { $provider } fehlt in dieser Antwort: { $reason }.
flights-reason-quota = das Kontingent ist aufgebraucht
flights-reason-credentials = die Zugangsdaten werden nicht angenommen
flights-reason-timeout = keine Antwort in der vorgesehenen Zeit
flights-reason-upstream = der Dienst ist gestört
flights-reason-bad_response = der Dienst hat Unlesbares geschickt
flights-reason-not_configured = nicht eingerichtet
flights-reason-award_only = nicht gefragt
flights-no-cash-source = Für Flüge gegen Geld ist keine Quelle eingerichtet.
flights-ask = Für die Flugsuche brauche ich noch: { $missing }.
flights-ask-origin = den Abflughafen
flights-ask-destination = das Ziel
flights-ask-depart_date = das Datum des Abflugs
flights-ask-cabin = die Klasse (Economy, Premium Economy, Business oder First)
flights-unknown_airport = Den Flughafen „{ $place }“ kenne ich nicht. Gib bitte einen IATA-Code an, etwa FRA.
flights-same_airports = Abflug und Ziel sind gleich ({ $place }).
flights-too_many_passengers = Es können höchstens { $most } Personen mit Sitzplatz gesucht werden, und nicht mehr Kleinkinder als Erwachsene.
flights-unknown_program = Das Meilenprogramm „{ $program }“ kenne ich nicht. Bekannt sind: { $known }.
flights-unknown_currency = Die Währung „{ $currency }“ kenne ich nicht. Bitte einen Code aus drei Buchstaben angeben, etwa EUR oder USD.
flights-date_in_past = Der { $day } liegt in der Vergangenheit.
flights-date_too_far = Der { $day } liegt zu weit in der Zukunft; Flüge gibt es bis zu 361 Tage im Voraus.
flights-return_before_departure = Der Rückflug liegt vor dem Hinflug.
flights-invalid = Die Angabe { $field } ist so nicht verwendbar.
flights-selected = Ausgewählt: { $flight }
flights-none-shown = Es wurde noch kein Flug gezeigt, der sich auswählen ließe.
flights-no-such = { $count ->
    [one] Gezeigt wurde ein Flug; wähl bitte die 1.
   *[other] Gezeigt wurden { $count } Flüge; wähl bitte einen davon.
}

# What the offline planner can do with the tools.
search_flights-ability = Flüge („Suche Business-Flüge von FRA nach JFK am 15. März“)
select_itinerary-ability = einen gezeigten Flug auswählen („Nimm den zweiten“)
