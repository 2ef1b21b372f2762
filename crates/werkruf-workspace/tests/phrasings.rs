//! The calls that the workspace tools propose for sentences in three languages, and the sentences for which they propose none.
#![expect(clippy::unwrap_used, reason = "test helpers are part of the tests")]

mod planner;

use std::sync::Arc;

use jiff::civil::{Date, date};
use planner::Planner;
use serde_json::{Value, json};
use werkruf_store::Module;
use werkruf_workspace::{SCHEMA, WorkspaceModule};

/// A Wednesday; its week runs from the 9th to the 15th.
const TODAY: Date = date(2026, 11, 11);

fn planner() -> Planner {
    Planner::new(TODAY, &[SCHEMA], |store, clock| Arc::new(WorkspaceModule::new(store, clock)).tools())
}

/// Checks each sentence against the expected calls, named without `get_`.
fn check(locale: &str, expected: &[(&str, &[(&str, Value)])]) {
    let named = |calls: &[(&str, Value)]| calls.iter().map(|(name, args)| (format!("get_{name}"), args.clone())).collect();
    planner().check(locale, expected.iter().map(|(text, calls)| (*text, named(calls))));
}

const REQUESTS: &str = "requests";
const TODOS: &str = "todos";
const WORKTIME: &str = "worktime";
const ARTICLES: &str = "cerebro_articles";
const USER: &str = "user_info";

#[test]
fn german() {
    let week = json!({"startDate": "2026-11-09", "endDate": "2026-11-15"});
    check(
        "de-DE",
        &[
            ("welche todos habe ich offen", &[(TODOS, json!({"status": "open"}))]),
            ("Welche Anfragen sind heute fällig?", &[(REQUESTS, json!({"dueDate": "today"}))]),
            ("wie lange habe ich heute gearbeitet", &[(WORKTIME, json!({"date": "today"}))]),
            ("welche cerebro artikel gibt es zu notfällen", &[(ARTICLES, json!({"searchTerm": "notfällen"}))]),
            ("welche requests und todos habe ich offen", &[(REQUESTS, json!({"status": "open"})), (TODOS, json!({"status": "open"}))]),
            ("wer bin ich?", &[(USER, json!({}))]),
            ("meine Rollen", &[(USER, json!({}))]),
            ("Welche Rollen habe ich eigentlich?", &[(USER, json!({}))]),
            ("anfragen", &[(REQUESTS, json!({}))]),
            ("zeig mir bitte meine aufgaben für diese woche", &[(TODOS, json!({"dueDate": "this_week"}))]),
            ("Aufgaben für morgen", &[(TODOS, json!({"dueDate": "tomorrow"}))]),
            ("was ist morgen an aufgaben fällig", &[(TODOS, json!({"dueDate": "tomorrow"}))]),
            ("offene anfragen und erledigte aufgaben", &[(REQUESTS, json!({"status": "open"})), (TODOS, json!({"status": "done"}))]),
            ("Hab ich noch unerledigte Anfragen?", &[(REQUESTS, json!({"status": "open"}))]),
            ("Welche Anfragen sind in Arbeit?", &[(REQUESTS, json!({"status": "in_progress"}))]),
            ("stornierte anfragen bitte", &[(REQUESTS, json!({"status": "cancelled"}))]),
            ("welche aufgaben sind noch nicht erledigt", &[(TODOS, json!({"status": "open"}))]),
            ("welche todos sind in der qualitätskontrolle", &[(TODOS, json!({"status": "quality_control"}))]),
            ("aufgaben von user 4", &[(TODOS, json!({"userId": 4}))]),
            ("zeige offene anfragen von Benutzer 3", &[(REQUESTS, json!({"status": "open", "userId": 3}))]),
            ("anfragen am 15.11.", &[(REQUESTS, json!({"dueDate": "2026-11-15"}))]),
            ("Welche Todos habe ich am 3. Dezember?", &[(TODOS, json!({"dueDate": "2026-12-03"}))]),
            ("aufgaben bis freitag", &[(TODOS, json!({"dueDate": "2026-11-13"}))]),
            ("was steht heute an?", &[(TODOS, json!({"dueDate": "today"}))]),
            ("was muss ich heute noch machen", &[(TODOS, json!({"dueDate": "today"}))]),
            ("Wie viele Stunden habe ich diese Woche gearbeitet?", &[(WORKTIME, week.clone())]),
            ("meine arbeitszeit gestern", &[(WORKTIME, json!({"date": "yesterday"}))]),
            ("arbeitszeit", &[(WORKTIME, json!({}))]),
            ("arbeitszeiten vom 1.11. bis 10.11.", &[(WORKTIME, json!({"startDate": "2026-11-01", "endDate": "2026-11-10"}))]),
            ("bin ich eingestempelt?", &[(WORKTIME, json!({}))]),
            ("wieviel hab ich letzte woche gearbeitet", &[(WORKTIME, json!({"startDate": "2026-11-02", "endDate": "2026-11-08"}))]),
            ("gibt es Artikel über Brandschutz und Evakuierung?", &[(ARTICLES, json!({"searchTerm": "brandschutz evakuierung"}))]),
            ("artikel zur arbeitszeit", &[(ARTICLES, json!({"searchTerm": "arbeitszeit"}))]),
            ("such mir artikel mit dem tag notfall", &[(ARTICLES, json!({"tags": ["notfall"]}))]),
            ("meine anfragne", &[(REQUESTS, json!({}))]),
            ("meine aufgabenliste", &[(TODOS, json!({}))]),
            ("Was liegt bei mir heute noch an?", &[(TODOS, json!({"dueDate": "today"}))]),
            ("Was muss ich morgen erledigen?", &[(TODOS, json!({"dueDate": "tomorrow"}))]),
            ("todos", &[(TODOS, json!({}))]),
            ("to-do-liste", &[(TODOS, json!({}))]),
            ("Stunden diese Woche", &[(WORKTIME, week.clone())]),
            ("Wann habe ich heute angefangen zu arbeiten?", &[(WORKTIME, json!({"date": "today"}))]),
            ("Was steht in Cerebro zu Urlaub?", &[(ARTICLES, json!({"searchTerm": "urlaub"}))]),
            ("Hast du Artikel zum Thema Datenschutz?", &[(ARTICLES, json!({"searchTerm": "datenschutz"}))]),
            ("Wie heiße ich?", &[(USER, json!({}))]),
            ("wer ist user 4", &[(USER, json!({"userId": 4}))]),
            (
                "offene aufgaben heute und arbeitszeit diese woche",
                &[(TODOS, json!({"status": "open", "dueDate": "today"})), (WORKTIME, week)],
            ),
        ],
    );
}

#[test]
fn english() {
    let week = json!({"startDate": "2026-11-09", "endDate": "2026-11-15"});
    check(
        "en-US",
        &[
            ("what open requests do I have today?", &[(REQUESTS, json!({"status": "open", "dueDate": "today"}))]),
            ("show me my tasks", &[(TODOS, json!({}))]),
            ("my to-dos for this week", &[(TODOS, json!({"dueDate": "this_week"}))]),
            ("which todos are done", &[(TODOS, json!({"status": "done"}))]),
            ("what requests and todos are open", &[(REQUESTS, json!({"status": "open"})), (TODOS, json!({"status": "open"}))]),
            ("requests", &[(REQUESTS, json!({}))]),
            ("requests of user 3", &[(REQUESTS, json!({"userId": 3}))]),
            ("open tasks for employee no. 4 tomorrow", &[(TODOS, json!({"status": "open", "dueDate": "tomorrow", "userId": 4}))]),
            ("any cancelled requests?", &[(REQUESTS, json!({"status": "cancelled"}))]),
            ("list requests in progress", &[(REQUESTS, json!({"status": "in_progress"}))]),
            ("tasks due on 2026-11-15", &[(TODOS, json!({"dueDate": "2026-11-15"}))]),
            ("tasks due 11/15", &[(TODOS, json!({"dueDate": "2026-11-15"}))]),
            ("do I have tasks on November 20th?", &[(TODOS, json!({"dueDate": "2026-11-20"}))]),
            ("what do I have to do today?", &[(TODOS, json!({"dueDate": "today"}))]),
            ("tasks not done yet", &[(TODOS, json!({"status": "open"}))]),
            ("which of my tasks are in quality control", &[(TODOS, json!({"status": "quality_control"}))]),
            ("how long have I worked today", &[(WORKTIME, json!({"date": "today"}))]),
            ("how many hours did I work this week?", &[(WORKTIME, week.clone())]),
            ("hours worked yesterday", &[(WORKTIME, json!({"date": "yesterday"}))]),
            ("am I clocked in?", &[(WORKTIME, json!({}))]),
            ("worktime", &[(WORKTIME, json!({}))]),
            ("my working hours last week", &[(WORKTIME, json!({"startDate": "2026-11-02", "endDate": "2026-11-08"}))]),
            ("how long did user 3 work on Monday", &[(WORKTIME, json!({"date": "2026-11-09", "userId": 3}))]),
            ("what articles are there about emergencies", &[(ARTICLES, json!({"searchTerm": "emergencies"}))]),
            ("find articles on fire safety", &[(ARTICLES, json!({"searchTerm": "fire safety"}))]),
            ("show me the emergency articles", &[(ARTICLES, json!({"searchTerm": "emergency"}))]),
            ("Which articles do we have?", &[(ARTICLES, json!({}))]),
            ("cerebro wifi", &[(ARTICLES, json!({"searchTerm": "wifi"}))]),
            ("who am I?", &[(USER, json!({}))]),
            ("what are my roles", &[(USER, json!({}))]),
            ("what's due today", &[(TODOS, json!({"dueDate": "today"}))]),
            ("what are user 5's tasks", &[(TODOS, json!({"userId": 5}))]),
            ("am I still clocked in", &[(WORKTIME, json!({}))]),
            ("when did I start working today", &[(WORKTIME, json!({"date": "today"}))]),
            ("articles tagged emergency", &[(ARTICLES, json!({"tags": ["emergency"]}))]),
            ("which branch am i in", &[(USER, json!({}))]),
            ("who is user 2?", &[(USER, json!({"userId": 2}))]),
            ("what do you know about me", &[(USER, json!({}))]),
            ("open requests and my hours this week", &[(REQUESTS, json!({"status": "open", "dueDate": "this_week"})), (WORKTIME, week)]),
        ],
    );
}

#[test]
fn spanish() {
    let week = json!({"startDate": "2026-11-09", "endDate": "2026-11-15"});
    check(
        "es-ES",
        &[
            ("solicitudes abiertas de hoy", &[(REQUESTS, json!({"status": "open", "dueDate": "today"}))]),
            ("¿Qué solicitudes tengo pendientes?", &[(REQUESTS, json!({"status": "open"}))]),
            ("solicitudes", &[(REQUESTS, json!({}))]),
            ("muéstrame mis tareas de esta semana", &[(TODOS, json!({"dueDate": "this_week"}))]),
            ("tareas para mañana", &[(TODOS, json!({"dueDate": "tomorrow"}))]),
            ("tareas hechas", &[(TODOS, json!({"status": "done"}))]),
            ("¿qué tareas están en curso?", &[(TODOS, json!({"status": "in_progress"}))]),
            ("solicitudes canceladas", &[(REQUESTS, json!({"status": "cancelled"}))]),
            ("mis solicitudes y tareas abiertas", &[(REQUESTS, json!({"status": "open"})), (TODOS, json!({"status": "open"}))]),
            ("tareas del usuario 4", &[(TODOS, json!({"userId": 4}))]),
            ("solicitudes de la usuaria 3", &[(REQUESTS, json!({"userId": 3}))]),
            ("tareas que vencen el 15 de noviembre", &[(TODOS, json!({"dueDate": "2026-11-15"}))]),
            ("solicitudes para el 15/11/2026", &[(REQUESTS, json!({"dueDate": "2026-11-15"}))]),
            ("dame las tareas del viernes", &[(TODOS, json!({"dueDate": "2026-11-13"}))]),
            ("¿qué tengo que hacer hoy?", &[(TODOS, json!({"dueDate": "today"}))]),
            ("mis pendientes", &[(TODOS, json!({"status": "open"}))]),
            ("tareas por hacer", &[(TODOS, json!({"status": "open"}))]),
            ("¿cuánto he trabajado hoy?", &[(WORKTIME, json!({"date": "today"}))]),
            ("horas trabajadas esta semana", &[(WORKTIME, week.clone())]),
            ("cuantas horas trabajé ayer", &[(WORKTIME, json!({"date": "yesterday"}))]),
            ("horas", &[(WORKTIME, json!({}))]),
            ("mis horas de hoy", &[(WORKTIME, json!({"date": "today"}))]),
            ("cuánto tiempo llevo trabajando", &[(WORKTIME, json!({}))]),
            ("mis horas de trabajo la semana pasada", &[(WORKTIME, json!({"startDate": "2026-11-02", "endDate": "2026-11-08"}))]),
            ("¿qué artículos hay sobre emergencias?", &[(ARTICLES, json!({"searchTerm": "emergencias"}))]),
            ("busca artículos de seguridad laboral", &[(ARTICLES, json!({"searchTerm": "seguridad laboral"}))]),
            ("artículos acerca de vacaciones", &[(ARTICLES, json!({"searchTerm": "vacaciones"}))]),
            ("busca en cerebro artículos sobre la wifi", &[(ARTICLES, json!({"searchTerm": "wifi"}))]),
            ("¿quién soy?", &[(USER, json!({}))]),
            ("¿qué roles tengo?", &[(USER, json!({}))]),
            ("¿Qué me queda por hacer hoy?", &[(TODOS, json!({"status": "open", "dueDate": "today"}))]),
            ("horas de esta semana", &[(WORKTIME, week)]),
            ("¿qué dice cerebro sobre emergencias?", &[(ARTICLES, json!({"searchTerm": "emergencias"}))]),
            ("mi perfil", &[(USER, json!({}))]),
            ("quién es el usuario 2", &[(USER, json!({"userId": 2}))]),
            ("hola, dame por favor mis solicitudes de hoy", &[(REQUESTS, json!({"dueDate": "today"}))]),
        ],
    );
}

#[test]
fn other_sentences_propose_nothing() {
    let planner = planner();
    let mut wrong = Vec::new();
    let sentences = [
        ("de-DE", "hallo"),
        ("de-DE", "Guten Morgen!"),
        ("de-DE", "danke dir"),
        ("de-DE", "wie ist das wetter heute"),
        ("de-DE", "öffne das fenster"),
        ("de-DE", "was sind deine aufgaben?"),
        ("de-DE", "welche aufgaben hat der bundestag"),
        ("de-DE", "aufgaben von Clara"),
        ("de-DE", "zeig mir claras aufgaben"),
        ("de-DE", "erstelle eine anfrage für morgen"),
        ("de-DE", "was ist eine anfrage?"),
        ("de-DE", "unsere ausgaben diese woche"),
        ("de-DE", "Öffnungszeiten heute"),
        ("de-DE", "ich habe heute viel gearbeitet und bin müde"),
        ("de-DE", "schreib einen artikel über hunde"),
        ("de-DE", "such mir einen flug nach madrid"),
        ("de-DE", "wer ist Angela Merkel?"),
        ("de-DE", "mathe aufgaben lösen"),
        ("de-DE", "wie funktioniert ein motor"),
        ("de-DE", "todo bien?"),
        ("de-DE", "Das ist nicht meine Aufgabe"),
        ("de-DE", "Die Anfrage war unhöflich"),
        ("de-DE", "Wie viele Stunden hat ein Tag?"),
        ("en-US", "my request was denied by the bank"),
        ("en-US", "how long does it take to work out"),
        ("en-US", "what to do in Berlin today"),
        ("es-ES", "no tengo tiempo hoy"),
        ("en-US", "open the window"),
        ("en-US", "hello there, how are you?"),
        ("en-US", "what's the weather today"),
        ("en-US", "find flights to Madrid tomorrow"),
        ("en-US", "I request a refund"),
        ("en-US", "create a task for tomorrow"),
        ("en-US", "cancel my request"),
        ("en-US", "Clara's tasks"),
        ("en-US", "requests from Bernd"),
        ("en-US", "what are your opening hours today"),
        ("en-US", "it worked!"),
        ("en-US", "how long has he worked on the pyramids"),
        ("en-US", "I read an article about cats yesterday"),
        ("en-US", "who am I to judge"),
        ("en-US", "who is the president?"),
        ("en-US", "give me a recipe for today"),
        ("en-US", "asdf qwer yxcv"),
        ("en-US", ""),
        ("en-US", "???"),
        ("es-ES", "todo bien?"),
        ("es-ES", "¿todo listo?"),
        ("es-ES", "hola a todos"),
        ("es-ES", "buenos días"),
        ("es-ES", "abre la ventana"),
        ("es-ES", "¿qué tiempo hace hoy?"),
        ("es-ES", "¿cómo funciona el cerebro humano?"),
        ("es-ES", "crea una solicitud para mañana"),
        ("es-ES", "tareas de María"),
        ("es-ES", "vuelos a Berlín mañana"),
        ("es-ES", "¿quién es Cervantes?"),
        ("es-ES", "nos vemos en 3 horas"),
    ];
    for (locale, text) in sentences {
        let proposed = planner.propose(text, locale);
        if !proposed.is_empty() {
            wrong.push(format!("{text:?} {proposed:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), sentences.len(), wrong.join("\n"));
}
