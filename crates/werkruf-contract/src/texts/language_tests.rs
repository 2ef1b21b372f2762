//! Which language short messages show.

use super::{Language, VOCABULARIES, Vocabulary, fold};

const GERMAN: &[&str] = &[
    "Welche Anfragen habe ich offen?",
    "12. März 2026",
    "am 15. März 2027",
    "am 3. Mai in Berlin",
    "Montag",
    "am Montag",
    "heute",
    "Heute!",
    "morgen",
    "bis Freitag",
    "Anfragen von heute",
    "meine Aufgaben",
    "offene Anfragen",
    "welche requests und todos habe ich offen",
    "requests von gestern",
    "zeig mir alle todos",
    "Wie lange habe ich heute gearbeitet?",
    "arbeitszeit",
    "von Frankfurt",
    "nach New York",
    "ja bitte",
    "Nein, danke",
    "Wer bin ich?",
    "was ist das",
    "Do, 15.10., bitte",
    "Artikel über Notfälle",
    "ich will nach LAS",
    "Hallo 👋, was gibt es?",
    "was ist los?",
    "welche To-dos",
    "meine to-dos",
    "meine Tasks",
    "am 5. Mai",
    "Ich bin da",
    "Frau May ist krank",
    "Wann kommt Hélène?",
    "per Mail bitte",
    "bin hier",
    "Was steht an?",
    "5. Oktober",
    "Guten Morgen",
    "noch 3 Stunden",
    "GIBT ES OFFENE ANFRAGEN",
    "kannst du mir helfen",
];

const ENGLISH: &[&str] = &[
    "what articles are there about emergencies",
    "Which requests are open?",
    "my requests",
    "show requests",
    "open requests",
    "today",
    "tomorrow",
    "on Monday",
    "March 15",
    "July",
    "How long have I worked today?",
    "Who am I and what can you do?",
    "yes please",
    "thanks!",
    "hello",
    "flights from DEN to LAS",
    "from Frankfurt",
    "next week",
    "all todos of this week",
    "is it done",
    "Find business flights from FRA to JFK on March 15",
    "get_requests for today",
    "Does Müller have open tasks?",
    "I need the worktime",
    "tell me about Köln",
    "I prefer window seats",
    "Remember me",
    "go on",
    "I am sick",
    "help me",
    "tasks",
    "on Friday",
    "non-stop flights",
    "is it May",
    "next day",
    "my to-do list",
];

const SPANISH: &[&str] = &[
    "¿Cuánto he trabajado hoy?",
    "solicitudes abiertas de hoy",
    "mañana",
    "Mañana por la mañana",
    "hoy",
    "hola",
    "gracias",
    "lunes",
    "12 de marzo",
    "el 3 de mayo",
    "mis tareas",
    "muéstrame los requests",
    "todos los requests abiertos",
    "¿qué tareas tengo pendientes?",
    "dame las solicitudes de ayer",
    "¿quién soy?",
    "artículos sobre emergencias",
    "¿hay solicitudes?",
    "vuelos a Madrid",
    "quiero volar a LAS",
    "la semana pasada",
    "buenos días",
    "¿Cuáles son mis solicitudes?",
    "tiempo de trabajo",
    "no tengo tareas",
    "sí, por favor",
    "por favor",
    "este mes",
    "este año",
    "que día es",
    "de acuerdo",
    "horas",
    "mis tasks",
    "el 3 de abril",
    "12 de julio",
    "¿hay tareas el domingo?",
];

/// Without a language, in several languages, or in one that has no texts.
const NONE: &[&str] = &[
    "",
    "   ",
    "am 3.4.",
    "am 15.4.",
    "15.11.2026",
    "2026-11-15",
    "3/4",
    "10:30",
    "42",
    "requests",
    "request",
    "todos",
    "todo",
    "worktime",
    "ok",
    "OK",
    "okay",
    "hi",
    "no",
    "es",
    "was",
    "in Berlin",
    "Do 15.10.",
    "FRA",
    "DEN",
    "LAS",
    "LAS DEN MAY",
    "get_requests",
    "get_my_todos",
    "Business",
    "New York",
    "Müller",
    "Muñoz",
    "Ada",
    "👍",
    "😀😀 🎉",
    "?",
    "...",
    "y",
    "a",
    "I",
    "4 a 5",
    "ada@the.example",
    "https://is.example/the/of",
    "12. April 2026",
    "November",
    "demandes",
    "Quelles sont mes demandes ouvertes ?",
    "Bonjour, je voudrais voir les demandes de la semaine",
    "merci",
    "les articles sur les urgences",
    "combien de temps est-ce que j'ai travaillé aujourd'hui ?",
    "le 3 mai",
    "quali sono le mie richieste aperte di oggi",
    "grazie",
    "che cosa devo fare oggi",
    "mostra gli articoli per favore",
    "oggi",
    "quais são as minhas solicitações abertas de hoje",
    "obrigado",
    "eu não tenho tarefas hoje",
    "bom dia",
    "amanhã",
    "Julio",
    "julio julio",
    "Notre Dame",
    "hay fever",
    "Karl May",
    "Frau May",
    "Black Friday",
    "Long Covid",
    "Go-Live Termin",
    "Team Day",
    "to-do Liste",
    "red hat",
    "recycle bin",
    "price tag",
    "die",
    "go",
    "day",
    "15 mai",
    "alle 10:30",
    "hallo",
    "Hallo 👋",
    "hallo, ja",
    "ja",
    "juni",
    "3 de abril",
    "sábado",
    "domingo",
    "emergência",
    "este mês",
    "que dia é",
    "Los Angeles",
    "今日の依頼",
    "сегодня",
    "اليوم",
];

#[test]
fn a_message_shows_its_language_or_none() {
    let mut wrong = Vec::new();
    let tables = [(GERMAN, Some(Language::German)), (ENGLISH, Some(Language::English)), (SPANISH, Some(Language::Spanish)), (NONE, None)];
    for (messages, language) in tables {
        for message in messages {
            let guessed = Language::guess(message);
            if guessed != language {
                wrong.push(format!("{message:?} shows {guessed:?}, not {language:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn numbers_names_and_marks_around_a_message_change_nothing() {
    let tables = [(GERMAN, Some(Language::German)), (ENGLISH, Some(Language::English)), (SPANISH, Some(Language::Spanish))];
    for (messages, language) in tables {
        for message in messages {
            for (before, after) in
                [("", " FRA 15.11.2026"), ("42 ", " 👍"), ("requests: ", "!"), ("get_requests ", " ok"), ("\n\t", "\r\n")]
            {
                let whole = format!("{before}{message}{after}");
                assert_eq!(Language::guess(&whole), language, "{whole:?}");
            }
        }
    }
}

#[test]
fn a_locale_names_a_language_and_accents_are_left_out() {
    assert_eq!(Language::of("de-AT"), Language::German);
    assert_eq!(Language::of("fr"), Language::English);
    assert_eq!(fold("Übergröße ¿QUÉ?"), "ubergrosse ¿que?");
    assert_eq!(fold("não, solicitações"), "nao, solicitacoes");
}

#[test]
fn every_word_of_the_lists_can_be_met() {
    for vocabulary in &VOCABULARIES {
        let Vocabulary { sure, likely, hints, .. } = vocabulary;
        let mut words: Vec<&str> = [sure, likely, hints].into_iter().flat_map(|list| list.split_whitespace()).collect();
        assert!(words.iter().all(|word| fold(word) == *word && word.len() > 1), "{words:?}");
        let all = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), all, "a word is in one list of a language");
    }
}
