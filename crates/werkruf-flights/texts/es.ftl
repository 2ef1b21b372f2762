# The texts of the module `flights` for users in Spanish. All three files have the same keys and variables; a test compares them.

flights-miles = { $miles } millas + { $taxes }
flights-taxes-unknown = tasas desconocidas
flights-sandbox = Son datos de ejemplo: aquí no hay ninguna búsqueda de vuelos configurada y estos vuelos son inventados.
flights-awards = Vuelos con millas { $from } → { $to } el { $day } ({ $cabin }):
flights-awards-return = Vuelos de vuelta con millas { $from } → { $to } el { $day } ({ $cabin }):
flights-cash = Vuelos de pago { $from } → { $to } el { $day } ({ $cabin }):
flights-none = No se encontraron vuelos: { $from } → { $to } el { $day } ({ $cabin }).
flights-cabin-economy = turista
flights-cabin-premium_economy = turista premium
flights-cabin-business = business
flights-cabin-first = primera
flights-nonstop = sin escalas
flights-stops = { $count ->
    [one] 1 escala
   *[other] { $count } escalas
}
flights-seats = { $count ->
    [one] queda 1 plaza
   *[other] quedan { $count } plazas
}
flights-total = { $price } en total para { $count } viajeros
flights-also = también se vende como { $numbers }
flights-unchecked = no se pudo comprobar el límite de tasas
flights-missing-provider = Falta { $provider } en esta respuesta: { $reason }.
flights-reason-quota = su cupo está agotado
flights-reason-credentials = no acepta las credenciales
flights-reason-timeout = no respondió a tiempo
flights-reason-upstream = el servicio falla
flights-reason-bad_response = el servicio envió algo ilegible
flights-reason-not_configured = no está configurado
flights-reason-award_only = no se preguntó
flights-no-cash-source = No hay ninguna fuente configurada de vuelos de pago.
flights-ask = Para buscar vuelos todavía necesito: { $missing }.
flights-ask-origin = el aeropuerto de salida
flights-ask-destination = el destino
flights-ask-depart_date = la fecha de salida
flights-ask-cabin = la clase (turista, turista premium, business o primera)
flights-unknown_airport = No conozco el aeropuerto «{ $place }». Indica un código IATA, por ejemplo FRA.
flights-same_airports = La salida y el destino son iguales ({ $place }).
flights-too_many_passengers = Se pueden buscar como máximo { $most } personas con asiento, y no más bebés que adultos.
flights-unknown_program = No conozco el programa de millas «{ $program }». Conozco: { $known }.
flights-unknown_currency = No conozco la moneda «{ $currency }». Indica un código de tres letras, como EUR o USD.
flights-date_in_past = El { $day } ya ha pasado.
flights-date_too_far = El { $day } queda demasiado lejos; los vuelos se venden hasta 361 días antes.
flights-return_before_departure = La vuelta es anterior a la ida.
flights-invalid = El dato { $field } no se puede usar así.
flights-selected = Elegido: { $flight }
flights-none-shown = Todavía no se ha mostrado ningún vuelo que elegir.
flights-no-such = { $count ->
    [one] Se mostró un vuelo; elige el 1.
   *[other] Se mostraron { $count } vuelos; elige uno de ellos.
}

# What the offline planner can do with the tools.
search_flights-ability = vuelos («Busca vuelos en business de MAD a JFK el 15 de marzo»)
select_itinerary-ability = elegir un vuelo mostrado («Toma el segundo»)
