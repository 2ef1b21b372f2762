# The texts of the kernel for users in Spanish. All three files have the same keys and variables; a test compares them.

# Errors of turns, by error code.
error-step_limit = El asistente necesitó más pasos de los permitidos y no encontró respuesta.
error-repeat_limit = El asistente se repitió y no encontró respuesta.
error-turn_deadline = Se agotó el tiempo para esta respuesta.
error-canceled = La consulta se canceló.
error-model_incomplete = El modelo de lenguaje se interrumpió antes de completar su respuesta.
error-model_cut = La respuesta del modelo de lenguaje se cortó antes de que sus llamadas a herramientas estuvieran completas.
error-model_busy = El modelo de lenguaje no acepta más peticiones en este momento.
error-model_refused = El modelo de lenguaje rechazó la petición.
error-context_length_exceeded = Esta conversación es más larga de lo que el modelo de lenguaje puede leer.
error-invalid_image = El modelo de lenguaje no puede usar una imagen de este mensaje.
error-model_not_found = El servidor del modelo de lenguaje no conoce el modelo.
error-model_credentials = El modelo de lenguaje no acepta la clave de este servidor.
error-model_unreachable = No se puede llegar al modelo de lenguaje.
error-model_unreadable = El servidor del modelo de lenguaje no respondió como un modelo de lenguaje.
error-model_unavailable = El modelo de lenguaje no responde.
error-unknown_user = La persona de la que vino este mensaje ya no existe.
error-poison = Este mensaje ha detenido el servidor varias veces y no se vuelve a intentar.
error-too_many_turns = Has enviado muchos mensajes seguidos. Espera un minuto, por favor, y vuelve a escribir.
error-budget_exceeded = El presupuesto para esto está agotado. Inténtalo de nuevo después del { $until }, por favor.
error-budget_tokens = Esta solicitud no permite suficientes tokens para una respuesta.
error-price_unknown = El modelo de lenguaje no tiene precio aquí, así que un presupuesto en dinero no puede contarlo.

# Errors of calls, by error code, used when the tool gives no message of its own.
call-permission_denied = No tienes permiso para ver esto.
call-invalid_arguments = No se pudo consultar así: { $reason }
call-unknown_user = No hay ninguna persona con ese número.
call-needs_connection = Conecte primero su cuenta con el servidor de esta función.
call-unknown_tool = Esta función no está disponible aquí.
call-tool_timeout = La consulta tardó demasiado. Inténtalo de nuevo en un momento.
call-canceled = La consulta se canceló.
call-outcome_unknown = No se sabe si esto se llevó a cabo. Comprueba el resultado antes de repetirlo.
call-approval_denied = Esto no fue aprobado.
call-approval_expired = La aprobación no llegó a tiempo.
call-interrupted = La consulta se interrumpió; no se conoce su resultado.
call-approval_pending = Esto espera la aprobación de una persona.
call-provider_call_not_run = Esto no se llevó a cabo: el proveedor del modelo no lo ejecutó.
call-tainted = Esto no se hace en una conversación que contiene contenido de extraños.
call-response_too_large = La respuesta era demasiado grande. Pide menos, por favor.
state-not-stored = Nada de esto se pudo guardar en esta conversación, porque su espacio está lleno. La llamada en sí se llevó a cabo.
call-tool_panicked = La herramienta falló al ejecutarse. El operador está avisado.
call-other = Esto no ha funcionado ahora mismo ({ $code }).
call-done = Hecho. La herramienta { $tool } respondió sin texto.
openai-approval = La herramienta { $tool } espera la aprobación de una persona ({ $id }). En cuanto se decida, esta conversación continúa.

# The offline planner, which is not a language model.
offline-notice = (Responde el planificador sin conexión, no un modelo de lenguaje.)
offline-lost = No lo he entendido. No soy un modelo de lenguaje, sino un planificador sencillo.
offline-can = Puedo consultar: { $things }.
offline-can-nothing = No tengo ninguna herramienta que pueda usar aquí.
offline-connect = Para preguntar libremente, conecta un modelo de lenguaje con OPENAI_API_KEY u OPENAI_BASE_URL.
offline-no-format = Soy un planificador sencillo y no un modelo de lenguaje, así que no puedo responder en un formato JSON dado.

# Durations.
duration-minutes = { $minutes } min
duration-hours = { $hours } h
duration-hours-minutes = { $hours } h { $minutes } min

# The tool `remember`.
remembered = Anotado: { $content }
remember-ability = recordar algo («Recuerda que prefiero pasillo»)

# Textos en canales como WhatsApp.
channel-waits = Esto necesita la aprobación de { $roles }: { $tool }. La respuesta llegará aquí en cuanto se decida.
channel-approval = { $name } solicita: { $tool }
channel-approval-cut = … y { $missing } caracteres más. Léalo todo antes de decidir: aprobación { $id } en `werkruf approvals list --json`.
channel-approve = Aprobar
channel-deny = Rechazar
channel-approved = { $name } aprobó: { $tool }
channel-denied = { $name } rechazó: { $tool }

# WhatsApp.
whatsapp-unknown-sender = Este número no está registrado aquí, así que no puedo ayudar. Pide a la administración que registre tu teléfono, por favor.
whatsapp-unreadable = Lo siento, eso no puedo leerlo aquí. Escríbeme con palabras, por favor.
whatsapp-approval-approved = Aprobado: { $tool }
whatsapp-approval-denied = Rechazado: { $tool }
whatsapp-approval-late = Esto ya se decidió antes, o ha terminado el plazo.
whatsapp-approval-four-eyes = Quien pide algo no puede aprobarlo. Tiene que hacerlo otra persona.
whatsapp-approval-unknown = Este botón no pertenece a ninguna aprobación que puedas decidir.

# The connection of a person with a server that has accounts of people.
connect-link = Conecte primero su cuenta con { $server }: { $url } (el enlace funciona una vez, durante diez minutos y solo para usted)
connect-title = Conectar una cuenta
connect-ask = Las herramientas de { $server } ({ $host }) podrán usar la cuenta que elija a continuación, en nombre de { $person }.
connect-warning = Continúe solo si usted es { $person } y lo ha pedido.
connect-go = Continuar al inicio de sesión
connect-done = La cuenta está conectada con { $server }. Puede cerrar esta página.
connect-gone = Este enlace ya se usó, ha caducado o se abrió en otro navegador. Pida uno nuevo.
connect-busy = El inicio de sesión ya se está preparando, quizá en otra pestaña. Inténtelo de nuevo en un momento.
connect-declined = La cuenta no se conectó, porque no se confirmó el inicio de sesión.
connect-failed = No se pudo conectar la cuenta: el otro servidor no respondió como debía. Inténtelo más tarde.
connect-unready = No se pudo conectar la cuenta: a este servidor le falta un ajuste. Avise a su operador.
