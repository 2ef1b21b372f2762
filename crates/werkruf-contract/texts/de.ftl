# The texts of the kernel for users in German. All three files have the same keys and variables; a test compares them.

# Errors of turns, by error code.
error-step_limit = Der Assistent brauchte mehr Schritte als erlaubt und fand keine Antwort.
error-repeat_limit = Der Assistent hat sich wiederholt und keine Antwort gefunden.
error-turn_deadline = Die Zeit für diese Antwort ist abgelaufen.
error-canceled = Die Anfrage wurde abgebrochen.
error-model_incomplete = Das Sprachmodell hat mitten in seiner Antwort aufgehört.
error-model_cut = Die Antwort des Sprachmodells wurde abgeschnitten, bevor seine Werkzeugaufrufe vollständig waren.
error-model_busy = Das Sprachmodell nimmt gerade keine weiteren Anfragen an.
error-model_refused = Das Sprachmodell hat die Anfrage abgelehnt.
error-context_length_exceeded = Dieses Gespräch ist länger, als das Sprachmodell lesen kann.
error-invalid_image = Das Sprachmodell kann ein Bild dieser Nachricht nicht verwenden.
error-model_not_found = Der Server des Sprachmodells kennt das Modell nicht.
error-model_credentials = Das Sprachmodell nimmt den Schlüssel dieses Servers nicht an.
error-model_unreachable = Das Sprachmodell ist nicht erreichbar.
error-model_unreadable = Der Server des Sprachmodells hat nicht wie ein Sprachmodell geantwortet.
error-model_unavailable = Das Sprachmodell antwortet nicht.
error-unknown_user = Die Person, von der diese Nachricht kam, ist nicht mehr bekannt.
error-poison = Diese Nachricht hat den Server mehrmals angehalten und wird nicht noch einmal versucht.
error-too_many_turns = Das waren gerade sehr viele Nachrichten auf einmal. Bitte warte eine Minute und schreib dann noch einmal.
error-budget_exceeded = Das Budget dafür ist aufgebraucht. Bitte versuche es nach dem { $until } noch einmal.
error-budget_tokens = Diese Anfrage erlaubt zu wenige Tokens für eine Antwort.
error-price_unknown = Für das Sprachmodell ist hier kein Preis hinterlegt, deshalb kann ein Budget in Geld es nicht zählen.

# Errors of calls, by error code, used when the tool gives no message of its own.
call-permission_denied = Dafür fehlt dir die Berechtigung.
call-invalid_arguments = Diese Abfrage war so nicht möglich: { $reason }
call-unknown_user = Es gibt keine Person mit dieser Nummer.
call-needs_connection = Verbinden Sie zuerst Ihr Konto mit dem Server dieser Funktion.
call-unknown_tool = Diese Funktion gibt es hier nicht.
call-tool_timeout = Das Nachsehen hat zu lange gedauert. Versuch es bitte gleich noch einmal.
call-canceled = Das Nachsehen wurde abgebrochen.
call-outcome_unknown = Ob das ausgeführt wurde, ist nicht bekannt. Prüf bitte das Ergebnis, bevor du es wiederholst.
call-approval_denied = Das wurde nicht genehmigt.
call-approval_expired = Die Genehmigung kam nicht rechtzeitig.
call-interrupted = Das Nachsehen wurde unterbrochen; das Ergebnis ist nicht bekannt.
call-approval_pending = Das wartet auf die Zustimmung einer Person.
call-provider_call_not_run = Das wurde nicht ausgeführt: Der Anbieter des Modells hat es nicht gestartet.
call-tainted = Das geschieht nicht in einem Gespräch, das Inhalte von Fremden enthält.
call-response_too_large = Die Antwort war zu groß. Bitte frage nach weniger.
state-not-stored = Davon konnte in diesem Gespräch nichts behalten werden, weil sein Speicher voll ist. Der Aufruf selbst wurde ausgeführt.
call-tool_panicked = Das Werkzeug ist beim Ausführen abgebrochen. Der Betreiber weiß Bescheid.
call-other = Das hat gerade nicht geklappt ({ $code }).
call-done = Fertig. Das Werkzeug { $tool } hat ohne Text geantwortet.
openai-approval = Das Werkzeug { $tool } wartet auf die Freigabe durch einen Menschen ({ $id }). Sobald entschieden ist, geht es in dieser Unterhaltung weiter.

# The offline planner, which is not a language model.
offline-notice = (Hier antwortet der Offline-Planer, kein Sprachmodell.)
offline-lost = Das habe ich nicht verstanden. Ich bin kein Sprachmodell, sondern ein einfacher Planer.
offline-can = Nachsehen kann ich: { $things }.
offline-can-nothing = Mir ist hier kein Werkzeug gegeben, das ich benutzen könnte.
offline-connect = Wer frei fragen will, verbindet ein Sprachmodell: mit OPENAI_API_KEY oder OPENAI_BASE_URL.
offline-no-format = Ich bin ein einfacher Planer und kein Sprachmodell und kann deshalb nicht in einem vorgegebenen JSON-Format antworten.

# Durations.
duration-minutes = { $minutes } Min.
duration-hours = { $hours } Std.
duration-hours-minutes = { $hours } Std. { $minutes } Min.

# The tool `remember`.
remembered = Gemerkt: { $content }
remember-ability = etwas merken („Merk dir, dass ich gern am Gang sitze“)

# Texte auf Kanälen wie WhatsApp.
channel-waits = Das muss noch genehmigt werden, und zwar von { $roles }: { $tool }. Sobald es entschieden ist, kommt hier die Antwort.
channel-approval = { $name } bittet um: { $tool }
channel-approval-cut = … und { $missing } weitere Zeichen. Vor der Entscheidung alles lesen: Genehmigung { $id } in `werkruf approvals list --json`.
channel-approve = Genehmigen
channel-deny = Ablehnen
channel-approved = { $name } hat genehmigt: { $tool }
channel-denied = { $name } hat abgelehnt: { $tool }

# WhatsApp.
whatsapp-unknown-sender = Diese Nummer ist hier nicht bekannt, deshalb kann ich nicht helfen. Bitte lass deine Telefonnummer von der Verwaltung eintragen.
whatsapp-unreadable = Das kann ich hier leider nicht lesen. Bitte schreib mir als Text, worum es geht.
whatsapp-approval-approved = Genehmigt: { $tool }
whatsapp-approval-denied = Abgelehnt: { $tool }
whatsapp-approval-late = Darüber wurde schon entschieden, oder die Zeit dafür ist abgelaufen.
whatsapp-approval-four-eyes = Wer um etwas bittet, kann es nicht selbst genehmigen. Das muss eine andere Person tun.
whatsapp-approval-unknown = Diese Schaltfläche gehört zu keiner Genehmigung, über die du entscheiden kannst.

# The connection of a person with a server that has accounts of people.
connect-link = Verbinden Sie zuerst Ihr Konto mit { $server }: { $url } (der Link gilt einmal, zehn Minuten lang und nur für Sie)
connect-title = Konto verbinden
connect-ask = Die Werkzeuge von { $server } ({ $host }) werden das Konto, das Sie gleich wählen, im Namen von { $person } benutzen können.
connect-warning = Fahren Sie nur fort, wenn Sie { $person } sind und selbst darum gebeten haben.
connect-go = Weiter zur Anmeldung
connect-done = Das Konto ist mit { $server } verbunden. Sie können diese Seite schließen.
connect-gone = Dieser Link wurde schon benutzt, ist abgelaufen oder wurde in einem anderen Browser geöffnet. Bitten Sie um einen neuen.
connect-busy = Die Anmeldung wird gerade schon vorbereitet, vielleicht in einem anderen Tab. Bitte versuchen Sie es gleich noch einmal.
connect-declined = Das Konto wurde nicht verbunden, weil die Anmeldung nicht bestätigt wurde.
connect-failed = Das Konto konnte nicht verbunden werden: Der andere Server hat nicht so geantwortet, wie er soll. Bitte versuchen Sie es später noch einmal.
connect-unready = Das Konto konnte nicht verbunden werden: Diesem Server fehlt eine Einstellung. Bitte sagen Sie es seinem Betreiber.
