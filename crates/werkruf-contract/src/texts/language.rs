//! The languages in which the server answers users.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::call::string_enum;

string_enum! {
    /// A language that has a text file.
    Language { German = "de", English = "en", Spanish = "es" }
}

/// The words that show a language, in lower case without accents; `_` joins a pair of words. What everybody types (`requests`, `todos`, `ok`, `in`) is
/// in no list.
struct Vocabulary {
    /// `None` for languages without texts: their messages must not be taken for one of the others.
    language: Option<Language>,
    /// The letters beside those of English: "emergência" is no Spanish word.
    letters: &'static str,
    /// Words that show the language alone.
    sure: &'static str,
    /// Words that other languages borrow: they show the language where nothing speaks for another one as much.
    likely: &'static str,
    /// Words that are also names, or words of another language: only two different ones show the language.
    hints: &'static str,
}

const VOCABULARIES: [Vocabulary; 4] = [
    Vocabulary {
        language: Some(Language::German),
        letters: "äöüß",
        sure: "ich wir ihr sie wie wer wo wann warum wieso welche welcher welches welchen bist ist sind seid habe hab haben hast habt hatte \
            wurde wird werden kann kannst konnen muss mochte mir mich dir dich mein meine meinen meiner meinem dein deine und oder aber \
            nicht kein keine nur noch schon auch fur von vom nach zu zum zur mit ohne bei seit durch gegen auf aus dem ein eine einen einem \
            einer diese dieser dieses jetzt heute gestern morgen ubermorgen vorgestern woche wochen monat jahr tage uhr stunde stunden \
            montag dienstag mittwoch donnerstag freitag samstag sonnabend sonntag januar februar marz oktober dezember viel viele wieviel \
            wieviele gibt zeig zeige such suche finde offen offene offenen aufgaben anfragen anfrage artikel arbeitszeit arbeitszeiten \
            gearbeitet notfall notfalle notfallen fallig erledigt steht stehen liegt liegen bitte danke nein guten abend flug fluge fliegen \
            nachste nachsten letzte letzten",
        likely: "",
        hints: "bin hat tag die der das den des du um uns bis mai juni juli alle alles lange hallo ja am was es hier",
    },
    Vocabulary {
        language: Some(Language::English),
        letters: "",
        sure: "we they she what which how who when where why have has had been are were does did could would should my your our their and for \
            with without about from at the this that these those there any some much many very today yesterday tomorrow show find give tell \
            search need want worked please hello thanks thank yes remember prefer you",
        likely: "tasks task open list work working weeks month year days hour hours monday tuesday wednesday thursday saturday sunday january \
            february march july october december done emergency emergencies good morning evening flight flights fly",
        hints: "can his or but not of to by all it its is if am was on me week day friday may june long due like let go next last sick help",
    },
    Vocabulary {
        language: Some(Language::Spanish),
        letters: "áéíóúüñ",
        sure: "yo cual cuales quien cuando cuanto cuanta cuantos cuantas soy eres tengo tiene tienes estoy estan mis unos unas hoy ayer manana \
            semana horas lunes martes miercoles jueves viernes enero febrero junio septiembre octubre noviembre diciembre abierta abiertas \
            abierto abiertos pendiente pendientes tareas tarea solicitudes solicitud trabajado trabaje tiempo trabajo muestra muestrame \
            ensename dime quiero necesito busco buscar puedes puedo articulos articulo emergencia emergencias hola gracias buenas tardes \
            noches vencen vence llevo muy pero vuelo vuelos proximo proxima ultimo ultima acuerdo por_favor este_mes",
        likely: "",
        hints: "somos hay dame del el los las de la que en con por para como esta este estas estos un una mi son si se es mes dia dias ano hora \
            sabado domingo marzo abril mayo julio agosto buenos mas sobre",
    },
    Vocabulary {
        language: None,
        letters: "áàâãéèêëíìîïóòôõúùûüç",
        sure: "le les une et sont je nous vous notre il elle mon ses pas pour avec dans sur qui quel quelle quels quelles combien comment quand \
            bonjour merci aujourd hui demain ouvertes ouvert demandes montre gli della delle dei degli di che chi sono ho mio mie miei quali \
            quale quanto quanta quante oggi ieri domani grazie ciao mostra aperte richieste uma nao sao voce eu meu meus minha minhas hoje \
            ontem amanha obrigado obrigada bom boa quais qual quantas quantos tenho tem em nas ao mostre abertas solicitacoes het een niet \
            ik wat welke zijn mijn vandaag",
        likely: "",
        hints: "dos non per hier na lo mia ma os est hai des du de la un mes que en son se si mai del con una mi esta este alle um uns dia dias \
            por para como das ano los las sabado domingo abril agosto sobre hora somos wie hallo ja juni juli",
    },
];

/// So many words decide at most.
const MOST_WORDS: usize = 200;
/// What a text must reach to show a language. A hint has half of it.
const ENOUGH: u32 = 2;

/// The weight of each word in each vocabulary.
static WEIGHTS: LazyLock<HashMap<&str, [u32; 4]>> = LazyLock::new(|| {
    let mut weights: HashMap<&str, [u32; 4]> = HashMap::new();
    for (at, Vocabulary { sure, likely, hints, .. }) in VOCABULARIES.iter().enumerate() {
        for (list, weight) in [(sure, ENOUGH + 1), (likely, ENOUGH), (hints, ENOUGH / 2)] {
            list.split_whitespace().for_each(|word| weights.entry(word).or_default()[at] = weight);
        }
    }
    weights
});

/// The longest locale tag. BCP 47 says how long one may be that everybody must accept.
const LOCALE_BYTES: usize = 35;

/// Whether the text has the form of a BCP 47 language tag such as `de-DE`. Locales stand in prompts, so nothing else may pass for one.
pub fn is_locale(text: &str) -> bool {
    let mut parts = text.split('-');
    let language = parts.next().unwrap_or_default();
    text.len() <= LOCALE_BYTES
        && (2..=8).contains(&language.len())
        && language.bytes().all(|byte| byte.is_ascii_alphabetic())
        && parts.all(|part| (1..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

impl Language {
    /// The language of a locale tag; English if the language is not supported.
    pub fn of(locale: &str) -> Self {
        let primary = locale.split(['-', '_']).next().unwrap_or_default();
        Self::parse(&primary.to_ascii_lowercase()).unwrap_or(Self::English)
    }

    /// The locale tag to use when only the language is known.
    pub const fn locale(self) -> &'static str {
        match self {
            Self::German => "de-DE",
            Self::English => "en-US",
            Self::Spanish => "es-ES",
        }
    }

    /// The language of a text; `None` if it shows none, or shows several equally.
    pub fn guess(text: &str) -> Option<Self> {
        // Addresses and names of programs are in no language.
        let spoken = text.split_whitespace().filter(|part| !part.contains(['_', '@', '/', '\\']));
        let words = spoken.flat_map(|part| part.split(|c: char| !c.is_alphanumeric())).filter(|word| !is_code(word)).take(MOST_WORDS);
        let (mut sums, mut seen, mut before) = ([0; 4], HashSet::new(), String::new());
        for word in words {
            let folded = fold(word);
            for known in [format!("{before}_{folded}"), folded.clone()] {
                // The same word twice is one hint.
                if let Some(weights) = WEIGHTS.get(known.as_str()).filter(|_| seen.insert(known)) {
                    for ((sum, weight), vocabulary) in sums.iter_mut().zip(weights).zip(&VOCABULARIES) {
                        *sum += if vocabulary.writes(word) { *weight } else { 0 };
                    }
                }
            }
            before = folded;
        }
        let most = sums.into_iter().max().filter(|most| *most >= ENOUGH)?;
        let mut best = VOCABULARIES.iter().zip(sums).filter(|(_, sum)| *sum == most);
        match (best.next(), best.next()) {
            (Some((vocabulary, _)), None) => vocabulary.language,
            _ => None,
        }
    }
}

impl Vocabulary {
    /// Whether a word has only letters of the language.
    fn writes(&self, word: &str) -> bool {
        word.to_lowercase().chars().all(|c| c.is_ascii() || self.letters.contains(c))
    }
}

/// Single letters, and codes such as those of airports (`LAS`, `DEN`).
fn is_code(word: &str) -> bool {
    let mut letters = word.chars();
    word.chars().count() < 2 || (word.len() <= 3 && letters.all(char::is_uppercase))
}

/// The text in lower case without accents, for comparing words; not for display.
pub fn fold(text: &str) -> String {
    text.to_lowercase()
        .chars()
        .flat_map(|c| {
            let plain = match c {
                'ä' | 'á' | 'à' | 'â' | 'ã' => 'a',
                'ö' | 'ó' | 'ò' | 'ô' | 'õ' => 'o',
                'ü' | 'ú' | 'ù' | 'û' => 'u',
                'é' | 'è' | 'ê' => 'e',
                'í' | 'ì' | 'î' => 'i',
                'ñ' => 'n',
                'ç' => 'c',
                other => other,
            };
            (plain == 'ß').then_some(['s', 's']).into_iter().flatten().chain((plain != 'ß').then_some(plain))
        })
        .collect()
}

#[cfg(test)]
#[path = "language_tests.rs"]
mod tests;
