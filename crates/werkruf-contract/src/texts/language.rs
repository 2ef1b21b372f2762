//! The languages in which the server answers users.

use std::collections::HashSet;
use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::call::string_enum;

string_enum! {
    /// A language that has a text file.
    Language { German = "de", English = "en", Spanish = "es" }
}

/// Words that show a language, in lower case without accents. A word that two of the languages share shows neither, so it is left out (`am`, `was`,
/// `in`, `es`, `no`, `me`), like names that everybody types (`requests`, `todos`, `ok`).
const GERMAN: &str = "ich wir ihr sie wie wer wo wann warum wieso welche welcher welches welchen bin bist ist sind seid habe hab haben hast habt \
    hat hatte wurde wird werden kann kannst konnen muss mochte mir mich uns dir dich mein meine meinen meiner meinem dein deine und oder \
    aber nicht kein keine nur noch schon auch fur von vom nach zu zum zur mit ohne bei bis seit durch gegen um auf aus der die das den dem des ein \
    eine einen einem einer diese dieser dieses jetzt heute gestern morgen ubermorgen vorgestern woche wochen monat jahr tag tage uhr stunde \
    stunden montag dienstag mittwoch donnerstag freitag samstag sonnabend sonntag januar februar marz mai juni juli oktober dezember du alle alles \
    viel viele wieviel wieviele gibt zeig zeige such suche finde offen offene offenen aufgaben anfragen anfrage artikel arbeitszeit arbeitszeiten \
    gearbeitet lange notfall notfalle notfallen fallig erledigt steht stehen liegt liegen bitte hallo danke ja nein guten abend flug fluge fliegen \
    nachste nachsten letzte letzten";
const ENGLISH: &str = "we they she what which how who when where why have has had been are were does did can could would should my your our his \
    their and or but not for of to with without about from by at the this that these those there any all some much many very today yesterday \
    tomorrow week weeks month year day days hour hours monday tuesday wednesday thursday friday saturday sunday january february march may june \
    july october december open show list find give tell search need want worked working work long due done emergency emergencies please hello \
    thanks thank yes remember prefer like let go you it its if is good morning evening flight flights fly next last";
const SPANISH: &str = "yo cual cuales quien cuando cuanto cuanta cuantos cuantas soy eres somos tengo tiene tienes hay estoy estan del el los las \
    de la que en con por para como esta este estas estos un una mi mis son si se mes unos unas hoy ayer manana semana dia dias ano hora lunes \
    martes miercoles jueves viernes sabado domingo enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre \
    abierta abiertas abierto abiertos pendiente pendientes tareas tarea solicitudes solicitud trabajado trabaje tiempo trabajo muestra muestrame \
    ensename dame dime quiero necesito busco buscar puedes puedo sobre articulos articulo emergencia emergencias hola gracias buenos buenas tardes \
    noches vencen vence llevo mas muy pero vuelo vuelos proximo proxima ultimo ultima";
/// The same for languages without texts, so that their messages are not taken for one of the others. What they share with Spanish or German is in both
/// lists.
const OTHERS: &str = "le les des du de la un une et est sont je nous vous il elle mes ma mon ses pas pour avec dans sur que qui quel quelle quels quelles \
    combien comment quand bonjour merci aujourd hui demain hier en son se si ouvertes ouvert demandes montre \
    lo gli del della delle dei degli di che chi sono ho hai mio mia mie miei per non quali quale quanto quanta quante oggi ieri domani grazie ciao \
    con una el mi mostra aperte richieste esta este \
    os um uma uns nao sao voce eu meu meus minha minhas hoje ontem amanha obrigado obrigada bom dia boa quais qual quantas quantos tenho tem \
    por para como dos das em na nas ao mostre abertas solicitacoes el los las \
    het een niet ik wat wie welke zijn mijn vandaag";
/// So many words decide at most.
const WORDS: usize = 200;

static LISTS: LazyLock<[HashSet<&str>; 4]> =
    LazyLock::new(|| [GERMAN, ENGLISH, SPANISH, OTHERS].map(|list| list.split_whitespace().collect()));

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

    /// The language of a text; `None` if no language has the most known words.
    pub fn guess(text: &str) -> Option<Self> {
        // Addresses and names of programs are in no language.
        let spoken = text.split_whitespace().filter(|part| !part.contains(['_', '@', '/', '\\']));
        let words = spoken.flat_map(|part| part.split(|c: char| !c.is_alphanumeric())).filter(|word| !is_code(word)).take(WORDS);
        let mut counts = [0_usize; 4];
        for word in words.map(fold) {
            counts.iter_mut().zip(LISTS.iter()).for_each(|(count, list)| *count += usize::from(list.contains(word.as_str())));
        }
        let most = counts.into_iter().max()?;
        let mut best =
            [Some(Self::German), Some(Self::English), Some(Self::Spanish), None].into_iter().zip(counts).filter(|(_, n)| *n == most);
        match (best.next(), best.next()) {
            (Some((language, 1..)), None) => language,
            _ => None,
        }
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
                'ä' | 'á' | 'à' | 'â' => 'a',
                'ö' | 'ó' | 'ò' | 'ô' => 'o',
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
