# The texts of the module `flights` for users in English; also used when another language lacks a text.

flights-miles = { $miles } miles + { $taxes }
flights-taxes-unknown = taxes unknown
flights-sandbox = This is sample data: no flight search is set up here, and these flights are made up.
flights-awards = Award flights { $from } → { $to } on { $day } ({ $cabin }):
flights-awards-return = Award flights back { $from } → { $to } on { $day } ({ $cabin }):
flights-cash = Flights for money { $from } → { $to } on { $day } ({ $cabin }):
flights-none = No flights found: { $from } → { $to } on { $day } ({ $cabin }).
flights-cabin-economy = economy
flights-cabin-premium_economy = premium economy
flights-cabin-business = business
flights-cabin-first = first
flights-nonstop = nonstop
flights-stops = { $count ->
    [one] 1 stop
   *[other] { $count } stops
}
flights-seats = { $count ->
    [one] 1 seat left
   *[other] { $count } seats left
}
flights-total = { $price } in all for { $count } travellers
flights-also = also sold as { $numbers }
flights-unchecked = the limit on taxes could not be checked
flights-missing-provider = { $provider } is missing from this answer: { $reason }.
flights-reason-quota = its quota is used up
flights-reason-credentials = its credentials are not accepted
flights-reason-timeout = no answer in time
flights-reason-upstream = the service is failing
flights-reason-bad_response = the service sent something unreadable
flights-reason-not_configured = not set up
flights-reason-award_only = not asked
flights-no-cash-source = No source of flights for money is set up.
flights-ask = To search flights I still need: { $missing }.
flights-ask-origin = the airport of departure
flights-ask-destination = the destination
flights-ask-depart_date = the date of departure
flights-ask-cabin = the cabin (economy, premium economy, business or first)
flights-unknown_airport = I do not know the airport "{ $place }". Please give an IATA code, such as FRA.
flights-same_airports = Departure and destination are the same ({ $place }).
flights-too_many_passengers = At most { $most } people with a seat can be searched for, and no more infants than adults.
flights-unknown_program = I do not know the loyalty program "{ $program }". Known are: { $known }.
flights-unknown_currency = I do not know the currency "{ $currency }". Please give a code of three letters, such as EUR or USD.
flights-date_in_past = { $day } is in the past.
flights-date_too_far = { $day } is too far ahead; flights are on sale up to 361 days in advance.
flights-return_before_departure = The return flight is before the outbound flight.
flights-invalid = { $field } cannot be used as it is.
flights-selected = Selected: { $flight }
flights-none-shown = No flight has been shown yet that could be selected.
flights-no-such = { $count ->
    [one] One flight was shown; please choose 1.
   *[other] { $count } flights were shown; please choose one of them.
}

# What the offline planner can do with the tools.
search_flights-ability = flights ("Find business flights from FRA to JFK on March 15")
select_itinerary-ability = choosing a flight that was shown ("Take the second one")
