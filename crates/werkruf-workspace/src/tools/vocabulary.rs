//! Word lists for questions about the workspace in German, English and Spanish. All words are folded (lower case, no accents).

/// A list of words, separated by spaces.
pub(super) struct List(&'static str);

impl List {
    pub(super) fn contains(&self, word: &str) -> bool {
        self.0.split_ascii_whitespace().any(|known| known == word)
    }
}

/// Stems of nouns for requests.
pub(super) const REQUESTS: &[&str] = &["anfrage", "request", "solicitud", "peticion"];
/// Stems of nouns for tasks. `todo` is handled separately, because it means "all" in Spanish.
pub(super) const TASKS: &[&str] = &["aufgabe", "task", "tarea", "todoliste", "todolist"];
/// Stems of nouns for articles.
pub(super) const ARTICLES: &[&str] = &["artikel", "article", "articulo", "cerebroarti"];
/// Stems of nouns for working time.
pub(super) const WORKTIME: &[&str] =
    &["arbeitszeit", "arbeitsstunde", "arbeitsdauer", "stundenzettel", "zeiterfassung", "worktime", "timesheet", "fichaje"];
/// Two-word names of working time.
pub(super) const WORKTIME_PAIRS: &[[&str; 2]] = &[
    ["work", "time"],
    ["working", "time"],
    ["work", "hours"],
    ["working", "hours"],
    ["hours", "worked"],
    ["time", "worked"],
    ["horas", "trabajadas"],
    ["tiempo", "trabajado"],
    ["jornada", "laboral"],
    ["stunden", "gearbeitet"],
    ["gearbeitete", "stunden"],
    ["geleistete", "stunden"],
    ["mi", "jornada"],
];
pub(super) const WORKTIME_TRIPLES: &[[&str; 3]] = &[["horas", "de", "trabajo"], ["tiempo", "de", "trabajo"]];
/// Nouns in which one-letter typos are accepted, with their stems.
pub(super) const TYPOS: &[(&str, &str)] = &[
    ("anfragen", "anfrage"),
    ("requests", "request"),
    ("solicitudes", "solicitud"),
    ("aufgaben", "aufgabe"),
    ("tareas", "tarea"),
    ("artikel", "artikel"),
    ("articles", "article"),
    ("articulos", "articulo"),
    ("arbeitszeit", "arbeitszeit"),
];

pub(super) const HOURS: List = List("stunden hours horas std hrs");
pub(super) const WORKED: List = List("gearbeitet gearbeitete arbeite worked work working trabajado trabaje trabajando trabajadas trabajo");
pub(super) const CLOCKED: List = List("eingestempelt ausgestempelt eingestochen clocked fichado fichada fiche");
/// "How long", "how much": they turn a verb such as "worked" into a question.
pub(super) const HOW_MUCH: &[[&str; 2]] = &[
    ["wie", "lange"],
    ["wie", "lang"],
    ["wie", "viel"],
    ["wie", "viele"],
    ["how", "long"],
    ["how", "much"],
    ["how", "many"],
    ["cuantas", "horas"],
    ["cuanto", "tiempo"],
    ["que", "horas"],
];
pub(super) const HOW_MUCH_WORDS: List = List("wieviel wieviele cuanto cuantas cuantos cuanta wielange");

pub(super) const FIRST_PERSON: List = List(
    "ich mir mich mein meine meinen meiner meinem meines habe hab bin i my me mine am im ive we our wir unsere yo mi mis tengo \
    llevo soy estoy trabaje fiche debo tenemos nuestras nuestros",
);
pub(super) const POSSESSIVE: List = List("mein meine meinen meiner meinem meines my mi mis mine our unsere unseren nuestras nuestros");
/// Possessives of other people or of the assistant.
pub(super) const OTHER_OWNERS: List = List(
    "dein deine deinen deiner your yours tu tus sein seine seinen seiner ihre ihren ihrer his her hers their theirs su sus dessen \
    deren whose vuestras",
);
/// Verbs in the third person, and third-person pronouns.
pub(super) const THIRD_PERSON: List = List("hat hatte has had does tiene tenia he's she er they ella ellos ellas ha");

/// Question words and requests to show something.
pub(super) const ASKING: List = List(
    "hast welche welcher welches welchen was wie wieviel wieviele gibt gibts zeig zeige zeigen liste auflisten suche such finde find \
    finden brauche gib nenne nenn sag sage hole hol anzeigen haben habe hab liegen liegt stehen steht uberblick ubersicht status \
    stand sehen what whats which how show list search any are is there give get got tell need see have look lookup check pull \
    display want view que cual cuales hay muestra muestrame mostrar busca buscame buscar dame dime ver ensename lista listame \
    tengo necesito quiero consulta consultar encuentra cuantas cuantos tenemos quedan queda falta faltan vencen vence remaining \
    left faellig fallig due anstehen ansteht overview",
);

/// Actions that the read tools do not perform.
pub(super) const ACTIONS: List = List(
    "erstelle erstellen erstell anlegen lege leg hinzufugen fuge losche loschen losch andere andern zuweisen weise schreibe \
    schreib schreiben kaufe kaufen bestelle bestellen buche buchen schicke schicken sende senden markiere schliesse schliessen \
    storniere stornieren erinnere ubersetze stelle stellen drucke create add make delete remove write buy order book send mark \
    close cancel change update assign remind translate submit print finish complete crea crear creame anade anadir agrega agregar \
    borra borrar elimina eliminar escribe escribir compra comprar reserva reservar envia enviar marca marcar cierra cerrar \
    cancela cancelar cambia cambiar asigna asignar recuerdame traduce imprime haz hazme",
);

/// Topics that these tools do not cover.
pub(super) const OTHER_TOPICS: List = List(
    "flug fluge flugen flight flights vuelo vuelos wetter weather clima rezept rezepte recipe recipes receta recetas witz joke \
    jokes chiste hotel hotels film filme movie movies pelicula song lied cancion fussball football futbol mathe math maths \
    matematicas http api curl",
);

/// Function words and polite phrases. They carry no topic.
pub(super) const STOP_WORDS: List = List(
    "erledigen anything wann when cuando der die das den dem des ein eine einen einem einer und oder aber auch mal bitte denn noch schon so eben gerade jetzt nun alle \
    allen aller alles ist sind war waren kann kannst konntest konnen du sie es man in im am an auf bei beim mit fur fuer von vom \
    zu zum zur nach uber ueber aus bis seit vor ab um dir uns ihr euch dazu hallo hi hey moin servus guten tag danke dank vielen \
    gern gerne wollte mochte moechte will wissen sehen machen tun muss soll sollte werden wird sich nur insgesamt lange viel \
    viele aktuell aktuelle aktuellen gesamt derzeit momentan eigentlich thema neue neuen neu davon fallige falligen falliger \
    diese dieser diesen dieses bezuglich betreffend rund wichtige dringende the a of to for from on at by with about regarding \
    concerning and or but also please pls plz can could would you do did does all some that this these those it its be been was \
    were far just now currently still yet already hello thanks thank ok okay up out into over total s ve re m us new latest \
    current let ll d like really know long much many related topic everything quick urgent el la los las un una unos unas y e o u \
    de del al en para por con sobre acerca son esta estan este estas estos lo le me te se si no ya favor porfa porfavor hola \
    buenas buenos dias gracias puedes podrias puedo todas todo todos aun todavia ahora actualmente saber he hasta desde tema \
    nuevas nuevos relacionados relacionado hablan hacer tiempo urgentes mas nicht not go plate agenda",
);

/// Words that precede a topic.
pub(super) const ABOUT_WORDS: List = List(
    "zu zum zur uber ueber bezuglich betreffend nach fur fuer von mit about on regarding concerning for with of sobre de del para \
    con",
);
/// Words that precede a person.
pub(super) const OF_WORDS: List = List("von vom of from de del des for fur fuer para by");
pub(super) const DETERMINERS: List = List("der dem den die das the el la los las a einem einer un una");
/// Nouns that precede the id of a person.
pub(super) const PERSON_NOUNS: List = List(
    "user users userid benutzer benutzerin nutzer nutzerin anwender usuario usuaria person persona mitarbeiter mitarbeiterin \
    employee empleado empleada kollege kollegen kollegin colleague companero companera",
);
pub(super) const NUMBER_LABELS: List = List("id nr nummer number numero no num");
pub(super) const TAG_WORDS: List = List("tag tags tagged schlagwort schlagworter schlagwortern hashtag etiqueta etiquetas etiquetados");
/// Words that separate two clauses.
pub(super) const AND_WORDS: List = List("und and y sowie plus ademas ausserdem");
/// Words that follow `todo` when it means "all".
pub(super) const TODO_ALL: List = List(
    "bien va esta listo claro normal perfecto tranquilo igual mundo dia tiempo el la lo los las mal genial correcto en eso esto \
    fue",
);
/// Words for starting to work.
pub(super) const WORK_START: List = List("angefangen begonnen arbeiten start started begin began clock empece empezado empezar trabajar");
/// Two-word phrases that mean "to do".
pub(super) const DUTIES: &[[&str; 2]] = &[
    ["zu", "tun"],
    ["zu", "erledigen"],
    ["zu", "machen"],
    ["to", "do"],
    ["que", "hacer"],
    ["por", "hacer"],
    ["debo", "hacer"],
    ["tengo", "pendiente"],
    ["mis", "pendientes"],
];

/// Words for facts about a user.
pub(super) const PROFILE_WORDS: &[&str] = &[
    "rolle",
    "rollen",
    "role",
    "roles",
    "rol",
    "profil",
    "profile",
    "perfil",
    "email",
    "mail",
    "correo",
    "rechte",
    "permisos",
    "permissions",
];
