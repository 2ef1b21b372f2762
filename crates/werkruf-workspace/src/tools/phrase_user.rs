//! Detects sentences that ask about a user: the caller, or a user named by id.

use super::phrase::Phrase;
use super::vocabulary;

impl Phrase<'_> {
    /// The user that the sentence asks about: `Some(None)` is the caller, `None` means that it asks about no user.
    pub(super) fn user(&self) -> Option<Option<i64>> {
        if self.any(&vocabulary::ACTIONS) || self.tokens.len() > 12 {
            return None;
        }
        let person = self.person();
        let asks_who = self.sequence(&["who", "is"]) || self.sequence(&["wer", "ist"]) || self.sequence(&["quien", "es"]);
        let fact = self.tokens.iter().any(|token| vocabulary::PROFILE_WORDS.contains(&token.folded.as_str()));
        if let Some(person) = person {
            let about = ["info", "infos", "information", "informationen", "informacion", "daten", "datos", "details", "name", "nombre"];
            let wanted = asks_who || fact || about.iter().any(|word| self.has(word));
            return wanted.then_some(Some(person));
        }
        let myself = [
            ["wer", "bin", "ich"],
            ["who", "am", "i"],
            ["wer", "ich", "bin"],
            ["who", "i", "am"],
            ["wie", "heisse", "ich"],
            ["como", "me", "llamo"],
        ]
        .iter()
        .any(|words| self.sequence(words))
            || self.sequence(&["quien", "soy"])
            || self.has("whoami");
        if myself {
            // "Who am I to judge" is about something else.
            return (self.unknown().count() == 0 && !self.sequence(&["i", "to"])).then_some(None);
        }
        self.about_me(fact).then_some(None)
    }

    fn about_me(&self, fact: bool) -> bool {
        if self.any(&vocabulary::OTHER_OWNERS) || self.any(&vocabulary::OTHER_TOPICS) || self.unknown().count() > 1 {
            return false;
        }
        let mine = self.any(&vocabulary::POSSESSIVE);
        let have =
            [["habe", "ich"], ["hab", "ich"], ["do", "i"], ["have", "i"], ["roles", "tengo"], ["rol", "tengo"], ["permisos", "tengo"]];
        let know = [["uber", "mich"], ["about", "me"], ["sobre", "mi"], ["de", "mi"]];
        let knows = ["weisst", "know", "sabes"].iter().any(|word| self.has(word)) && know.iter().any(|pair| self.sequence(pair));
        let branch = ["filiale", "standort", "branch", "sucursal"].iter().any(|word| self.has(word))
            && [["bin", "ich"], ["am", "i"]].iter().any(|pair| self.sequence(pair));
        let at_branch = self.has("sucursal") && self.has("estoy");
        let data = self.tokens.len() <= 4 && mine && ["daten", "datos", "account", "konto"].iter().any(|word| self.has(word));
        (fact && (mine || have.iter().any(|pair| self.sequence(pair)))) || knows || branch || at_branch || data
    }
}
