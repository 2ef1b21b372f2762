//! The languages with their own text analysis, and language guessing.

use std::collections::HashSet;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::words::{folded, is_alphabetic};

/// A language with its own stemmer and function words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    De,
    En,
    Es,
}

impl Language {
    /// All languages, in the order of their codes.
    pub const ALL: [Self; 3] = [Self::De, Self::En, Self::Es];

    /// The language code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::De => "de",
            Self::En => "en",
            Self::Es => "es",
        }
    }

    /// The language of a code or locale: `de`, `de-AT`, `ES_mx`.
    pub fn parse(code: &str) -> Option<Self> {
        let code = code.split(['-', '_']).next().unwrap_or_default().to_ascii_lowercase();
        Self::ALL.into_iter().find(|language| language.code() == code)
    }

    /// Whether the word, which must be normalised, is a function word of the language.
    pub(super) fn has_function_word(self, word: &str) -> bool {
        FUNCTION_WORDS[self as usize].contains(word)
    }
}

/// Words without a topic, with and without accents, because users omit accents.
static FUNCTION_WORDS: LazyLock<[HashSet<String>; 3]> = LazyLock::new(|| {
    [GERMAN, ENGLISH, SPANISH].map(|list| list.split_whitespace().flat_map(|word| [word.to_owned(), folded(word)]).collect())
});

const GERMAN: &str = "der die das den dem des ein eine einer eines einem einen und oder aber nicht kein keine ist sind war waren wird werden \
    wurde wurden hat haben hatte hatten in im an am auf aus bei mit nach von vom zu zum zur für über unter um durch als auch es er sie wir \
    ihr ich sich was wer wie wo wann warum welche welcher welches welchen wen wem dass ob so noch nur sehr sein seine seiner ihre ihrer \
    dieser diese dieses man kann";
const ENGLISH: &str = "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to \
    was will with what which who whom how when where why do does did can could should would has have had been its from about than were";
const SPANISH: &str = "el la los las un una unos unas y o u e pero no de del a al en con por para sin sobre que qué quién quien cuál cuales \
    cuáles cual cómo como cuándo cuando dónde donde cuánto cuántos cuántas es son fue fueron era eran ser ha han se su sus lo le les este \
    esta estos estas ese esa más muy entre desde hasta puede pueden";

/// Function words of languages without an analysis, so that their texts are not taken for Spanish or German.
static OTHER_WORDS: LazyLock<[HashSet<&str>; 5]> =
    LazyLock::new(|| [FRENCH, ITALIAN, PORTUGUESE, CATALAN, DUTCH].map(|list| list.split_whitespace().collect()));
const OTHER_CODES: [&str; 5] = ["fr", "it", "pt", "ca", "nl"];
/// Letters that are rare in the other languages of the text's script.
const LETTERS: [&str; 3] = ["äöüß", "", "ñáíóúé"];
const OTHER_LETTERS: [&str; 5] = ["èêëàâçùûîïôœé", "àèìòùé", "ãõçâêôàáíóúé", "àèòçïíóúé", "ëï"];

const FRENCH: &str = "le la les l un une des du de d et ou mais ne pas est sont était ce cette ces cet se son sa ses leur leurs il elle ils \
    elles on nous vous je j dans sur sous avec sans pour par au aux en y que qu qui quoi dont où comment quand pourquoi combien quel quelle \
    être été avoir ont a à plus très aussi comme c s n";
const ITALIAN: &str = "il lo la gli le i l un uno una e o ma non è sono era che chi cui di del della dei degli delle dell da dal dalla dai in \
    nel nella nei nelle con su sul sulla per tra fra a al alla ai alle all si suo sua loro questo questa questi queste come quando dove \
    perché più anche ha hanno essere stato se ci tutto tutta tutti tutte";
const PORTUGUESE: &str = "o a os as um uma uns umas e ou mas não é são era foi ser de do da dos das em no na nos nas por pelo pela para com sem \
    sobre que quem qual quais como quando onde quanto se seu sua seus suas ele ela eles elas este esta isso isto mais muito também já ao aos à \
    às até entre há tem têm você";
const CATALAN: &str = "el la els les un una i o però no de del dels d a al als en amb per sense sobre que què qui quin quina com quan on és són \
    era ser ha han es seu seva aquest aquesta més molt també l s n";
const DUTCH: &str = "de het een en of maar niet geen is zijn was waren wordt worden heeft hebben in op aan uit bij met naar van voor over onder om \
    als ook er hij zij wij ik je zich wat wie hoe waar wanneer waarom welke dat die dit deze te tot nog zeer";

/// The last letter of the Latin blocks of Unicode.
const LAST_LATIN: char = '\u{24f}';

/// What the words of a text say about its language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guess {
    Known(Language),
    /// A language without an analysis; its code if it is one of a few that are recognised.
    Other(Option<&'static str>),
    /// The words do not show the language, because the text is short, a table or a list of names.
    Unclear,
}

/// The required lead over the second-best language.
const MARGIN: usize = 2;
/// The fewest signs of a language without an analysis.
const OTHER_SIGNS: usize = 4;
/// In prose of this many words at least one word in ten is a function word of its language.
const LONG: usize = 30;
const WORDS_PER_FUNCTION_WORD: usize = 10;

/// Prose has this many words in a line or more, and ends a sentence after this many words or fewer.
const LINE: usize = 8;
const SENTENCE: usize = 40;

/// Whether a text consists of sentences, and is no table and no list of names.
pub(super) fn is_prose(text: &str) -> bool {
    let lines = text.lines().filter(|line| !line.trim().is_empty()).count();
    let mut rest = text.split_whitespace().peekable();
    let (mut words, mut sentences) = (0, 0);
    while let Some(word) = rest.next() {
        words += 1;
        // A small letter follows an abbreviation, not the end of a sentence.
        let goes_on = rest.peek().is_some_and(|next| next.starts_with(char::is_lowercase));
        sentences += usize::from(!goes_on && ends_sentence(word));
    }
    words >= lines * LINE && sentences * SENTENCE >= words
}

fn ends_sentence(word: &str) -> bool {
    let mut letters = word.trim_end_matches(['"', '\'', ')', '»', '”']).chars().rev();
    letters.next().is_some_and(|last| ".!?…".contains(last)) && letters.next().is_some_and(char::is_alphanumeric)
}

/// The signs of one language in a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Signs {
    /// Its function words, and two for each letter that is typical of it.
    all: usize,
    /// Its function words alone.
    words: usize,
}

impl Signs {
    fn add(&mut self, word: &str, is_function_word: bool, letters: &str) {
        self.words += usize::from(is_function_word);
        self.all += usize::from(is_function_word);
        if !word.is_ascii() {
            self.all += 2 * word.chars().filter(|letter| letters.contains(*letter)).count();
        }
    }
}

/// The language of these normalised words. A language must lead in function words and in all signs, because names and foreign words bring letters
/// of other languages: "The résumé of José Pérez".
pub(super) fn guess<'a>(words: impl Iterator<Item = &'a str>, is_prose: bool) -> Guess {
    let (mut signs, mut others) = ([Signs::default(); 3], [Signs::default(); 5]);
    let (mut all, mut foreign_script) = (0_usize, 0_usize);
    for word in words {
        all += usize::from(is_alphabetic(word));
        for language in Language::ALL {
            signs[language as usize].add(word, language.has_function_word(word), LETTERS[language as usize]);
        }
        for ((signs, list), letters) in others.iter_mut().zip(&*OTHER_WORDS).zip(OTHER_LETTERS) {
            signs.add(word, list.contains(word), letters);
        }
        foreign_script += usize::from(is_alphabetic(word) && word.chars().all(|letter| letter > LAST_LATIN));
    }
    let best = Language::ALL.into_iter().max_by_key(|language| (signs[*language as usize].all, std::cmp::Reverse(*language)));
    let best = best.unwrap_or(Language::En);
    let most = signs[best as usize];
    let rest = || Language::ALL.into_iter().filter(|language| *language != best).map(|language| signs[language as usize]);
    let words = rest().map(|signs| signs.words).chain([most.words]).max().unwrap_or(0);
    let next = rest().map(|signs| signs.all).max().unwrap_or(0);
    let other = others.iter().copied().max().unwrap_or_default();
    // A long text has the function words of its language, not only its letters.
    let has_function_words = |signs: Signs| !is_prose || all < LONG || signs.words * WORDS_PER_FUNCTION_WORD >= all;
    if has_function_words(most) && most.all >= next + MARGIN && most.all > other.all && most.words >= words.max(other.words) {
        return Guess::Known(best);
    }
    if has_function_words(other) && other.all >= (most.all + MARGIN).max(OTHER_SIGNS) && other.words > words {
        let mut codes = others.iter().zip(OTHER_CODES).filter(|(signs, _)| **signs == other).map(|(_, code)| code);
        return Guess::Other(codes.next().filter(|_| codes.next().is_none()));
    }
    let is_foreign = 2 * foreign_script > all || !has_function_words(most);
    if is_foreign { Guess::Other(None) } else { Guess::Unclear }
}

#[cfg(test)]
mod tests {
    use crate::guess_language;

    use super::{Guess, Language};

    #[test]
    fn texts_of_the_supported_languages_are_recognised() {
        for (text, language) in [
            ("Die Meilen verfallen nach drei Jahren, wenn Sie nicht fliegen.", Language::De),
            ("Wie hoch ist die Gebühr für Sperrgepäck?", Language::De),
            ("The miles expire after three years if you do not fly.", Language::En),
            ("Which aircraft is used on the route to Lima and what does it cost?", Language::En),
            ("Las millas caducan a los tres años si usted no vuela con la compañía.", Language::Es),
            ("El equipaje de mano no puede pesar más de ocho kilos y se entrega en la puerta.", Language::Es),
            ("La tarjeta de embarque se envía por correo", Language::Es),
            ("El crédito también depende del interés y de los plazos que se fijan en el contrato.", Language::Es),
            ("The café in Málaga is open until eight and it is not far from the port", Language::En),
        ] {
            assert_eq!(guess_language(text), Guess::Known(language), "{text}");
        }
    }

    #[test]
    fn other_languages_are_recognised_as_such() {
        for (code, texts) in [
            (
                Some("fr"),
                &[
                    "Les miles expirent au bout de trois ans si vous ne volez pas avec la compagnie.",
                    "Le bagage à main ne doit pas peser plus de huit kilos et il est remis à la porte.",
                    "La carte d'embarquement est envoyée par courriel à tous les passagers de la réservation.",
                    "Quel est le prix de la modification de un billet pour Paris ?",
                ][..],
            ),
            (
                Some("it"),
                &[
                    "Le miglia scadono dopo tre anni se non si vola con la compagnia.",
                    "Il bagaglio a mano non deve pesare più di otto chili e si consegna al cancello.",
                    "La carta d'imbarco è inviata per posta elettronica a tutti i passeggeri.",
                ],
            ),
            (
                Some("pt"),
                &[
                    "As milhas expiram depois de três anos se você não voar com a companhia.",
                    "A bagagem de mão não pode pesar mais de oito quilos e é entregue na porta.",
                    "A taxa de limpeza é paga por noite e o depósito é devolvido até o fim de semana.",
                    "O cartão de embarque é enviado por correio para todos os passageiros da reserva.",
                ],
            ),
            (Some("ca"), &["L'equipatge de mà no pot pesar més de vuit quilos i es lliura a la porta."]),
            (Some("nl"), &["De handbagage mag niet meer dan acht kilo wegen en wordt bij de deur afgegeven."]),
            (None, &["Срок действия миль истекает через три года.", "マイルは三年後に失効します。"]),
        ] {
            for text in texts {
                assert_eq!(guess_language(text), Guess::Other(code), "{text}");
            }
        }
        // A language without a list of function words: a long text without those of the others.
        let indonesian = "Mil kedaluwarsa setelah tiga tahun jika tidak digunakan. Bagasi kabin tidak boleh lebih dari delapan kilogram dan \
            diserahkan sebelum naik pesawat. Perubahan tiket dikenakan biaya lima puluh euro. Kursi dapat dipilih sampai satu hari sebelum keberangkatan.";
        assert_eq!(guess_language(indonesian), Guess::Other(None));
        // Its letters are those of German, its function words are not.
        let swedish = "Resväskan får väga högst åtta kilo och ska lämnas vid dörren innan du går ombord. Avgiften för ändrade biljetter är femtio \
            euro per person. Platser kan väljas fram till en dag före avgång, och poängen försvinner efter tre år om de inte används. Barn under två \
            år reser gratis i knät på en vuxen.";
        assert_eq!(guess_language(swedish), Guess::Other(None));
    }

    #[test]
    fn a_text_without_signs_is_unclear() {
        for text in [
            "",
            "E-7730",
            "Boeing 777-300ER cabin",
            "Award chart: 56,000 miles each way",
            "Anna Kramer, Leo Okafor, Aachen",
            "Nota de crédito",
            "The résumé of José Pérez is in the café folder.",
        ] {
            assert_eq!(guess_language(text), Guess::Unclear, "{text}");
        }
    }

    #[test]
    fn long_tables_and_lists_are_unclear() {
        let names = ["Anna Kramer", "Leo Okafor", "Marta Ruiz", "Jonas Weber", "Aiko Tanaka", "Pavel Novak"].repeat(6);
        let goods = ["Oak table 120.00", "Pine chair 45.50 EUR", "Steel lamp incl. bulb 30.00", "Wool carpet 2 x 3 m 210.00"].repeat(12);
        for text in [names.join(", "), names.join("\n"), goods.join("\n"), goods.join(" | ")] {
            assert_eq!(guess_language(&text), Guess::Unclear, "{text}");
        }
    }
}
