//! Dates in a sentence: named days, weekdays and dates in German, English and Spanish.

use jiff::ToSpan;
use jiff::civil::{Date, Weekday};
use werkruf_contract::Language;

use super::days::{Day, Days, shifted};
use super::token::Token;

/// Whether a bare weekday means the next or the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Future,
    Past,
}

/// How dates in a sentence are interpreted.
#[derive(Debug, Clone, Copy)]
pub(super) struct DateRules {
    pub(super) today: Date,
    pub(super) language: Language,
    /// In dates with slashes the month comes before the day.
    pub(super) american: bool,
    pub(super) direction: Direction,
}

const MONTHS: [&[&str]; 12] = [
    &["januar", "january", "enero", "jan", "janner"],
    &["februar", "february", "febrero", "feb"],
    &["marz", "march", "marzo", "mar"],
    &["april", "abril", "apr"],
    &["mai", "may", "mayo"],
    &["juni", "june", "junio", "jun"],
    &["juli", "july", "julio", "jul"],
    &["august", "agosto", "aug"],
    &["september", "septiembre", "setiembre", "sep", "sept"],
    &["oktober", "october", "octubre", "okt", "oct"],
    &["november", "noviembre", "nov"],
    &["dezember", "december", "diciembre", "dez", "dec"],
];

const WEEKDAYS: [(&[&str], Weekday); 7] = [
    (&["montag", "monday", "lunes"], Weekday::Monday),
    (&["dienstag", "tuesday", "martes"], Weekday::Tuesday),
    (&["mittwoch", "wednesday", "miercoles"], Weekday::Wednesday),
    (&["donnerstag", "thursday", "jueves"], Weekday::Thursday),
    (&["freitag", "friday", "viernes"], Weekday::Friday),
    (&["samstag", "sonnabend", "saturday", "sabado"], Weekday::Saturday),
    (&["sonntag", "sunday", "domingo"], Weekday::Sunday),
];

const TODAY: &[&str] = &["heute", "heutige", "heutigen", "heutiger", "today", "todays", "hoy", "tonight"];
const YESTERDAY: &[&str] = &["gestern", "gestrige", "gestrigen", "yesterday", "yesterdays", "ayer"];
const THIS: &[&str] = &[
    "diese",
    "dieser",
    "diesen",
    "die",
    "der",
    "laufende",
    "laufenden",
    "aktuelle",
    "aktuellen",
    "this",
    "current",
    "esta",
    "este",
    "la",
    "el",
];
const NEXT: &[&str] = &["nachste", "nachsten", "nachster", "kommende", "kommenden", "kommender", "next", "coming", "proxima", "proximo"];
const LAST: &[&str] =
    &["letzte", "letzten", "letzter", "vorige", "vorigen", "vergangene", "vergangenen", "last", "previous", "past", "pasada", "pasado"];
const WEEK: &[&str] = &["woche", "wochen", "week", "weeks", "semana"];
const MONTH: &[&str] = &["monat", "month", "mes"];
const SINCE: &[&str] = &["seit", "since", "desde", "ab"];

/// Whether the word can be part of a date or time expression.
pub(super) fn is_time(word: &str) -> bool {
    let lists = [
        TODAY,
        YESTERDAY,
        NEXT,
        LAST,
        WEEK,
        MONTH,
        SINCE,
        &["morgen", "tomorrow", "tomorrows", "manana", "ubermorgen", "vorgestern", "anteayer", "morning"],
    ];
    lists.iter().any(|list| list.contains(&word))
        || month_of(word).is_some()
        || weekday_of(word).is_some()
        || word.starts_with(|c: char| c.is_ascii_digit())
}

/// The day that the words name, and a range if the words name two dates or a start ("since Monday").
pub(super) fn time_in(tokens: &[Token<'_>], text: &str, date_rules: DateRules) -> (Option<Day>, Option<Days>) {
    let dates = dates(tokens, text, date_rules);
    if let [first, second, ..] = dates.as_slice() {
        return (None, Some(Days { from: *first.min(second), to: *first.max(second) }));
    }
    let day = dates.first().copied().map(Day::On).or_else(|| named(tokens, date_rules));
    let since = tokens.iter().any(|token| SINCE.contains(&token.folded.as_str()));
    let span = day.filter(|_| since && date_rules.direction == Direction::Past).map(|day| {
        let from = day.days(date_rules.today).from;
        Days { from, to: date_rules.today.max(from) }
    });
    (day, span)
}

fn named(tokens: &[Token<'_>], date_rules: DateRules) -> Option<Day> {
    let words: Vec<&str> = tokens.iter().map(|token| token.folded.as_str()).collect();
    let has = |list: &[&str]| words.iter().any(|word| list.contains(word));
    let after = |at: usize, back: usize| at.checked_sub(back).and_then(|at| words.get(at)).copied().unwrap_or_default();
    if has(TODAY) {
        return Some(Day::Today);
    }
    if words.windows(3).any(|w| *w == ["day", "after", "tomorrow"]) || has(&["ubermorgen"]) || pair(&words, "pasado", "manana") {
        return Some(Day::On(shifted(date_rules.today, 2.days())));
    }
    if has(&["vorgestern", "anteayer"]) {
        return Some(Day::On(shifted(date_rules.today, -2.days())));
    }
    if has(YESTERDAY) {
        return Some(Day::Yesterday);
    }
    let morning = |at: usize| ["guten", "jeden", "am", "la"].contains(&after(at, 1));
    let tomorrow =
        |(at, word): (usize, &&str)| ["morgen", "manana", "tomorrow", "tomorrows", "morgige", "morgigen"].contains(word) && !morning(at);
    if words.iter().enumerate().any(tomorrow) {
        return Some(Day::Tomorrow);
    }
    for (at, word) in words.iter().enumerate() {
        let next_word = words.get(at + 1).copied().unwrap_or_default();
        let near = [after(at, 1), next_word];
        let which = |list: &[&str]| near.iter().any(|word| list.contains(word));
        let of = |this, next, last| {
            if which(NEXT) {
                Some(next)
            } else if which(LAST) {
                Some(last)
            } else {
                which(THIS).then_some(this)
            }
        };
        let span = if WEEK.contains(word) {
            of(Day::ThisWeek, Day::NextWeek, Day::LastWeek)
        } else if MONTH.contains(word) {
            of(Day::ThisMonth, Day::NextMonth, Day::LastMonth)
        } else {
            None
        };
        if span.is_some() {
            return span;
        }
        if let Some(weekday) = weekday_of(word) {
            return Some(Day::On(nearest(weekday, date_rules)));
        }
    }
    None
}

fn pair(words: &[&str], first: &str, second: &str) -> bool {
    words.windows(2).any(|pair| pair[0] == first && pair[1] == second)
}

/// The next or previous such weekday; today counts in both directions.
fn nearest(weekday: Weekday, date_rules: DateRules) -> Date {
    let today = date_rules.today.weekday();
    match date_rules.direction {
        Direction::Future => shifted(date_rules.today, i64::from(today.until(weekday)).days()),
        Direction::Past => shifted(date_rules.today, -i64::from(today.since(weekday)).days()),
    }
}

fn month_of(word: &str) -> Option<i8> {
    let at = MONTHS.iter().position(|names| names.contains(&word))?;
    i8::try_from(at + 1).ok()
}

fn weekday_of(word: &str) -> Option<Weekday> {
    let bare = word.strip_suffix('s').unwrap_or(word);
    WEEKDAYS.iter().find(|(names, _)| names.contains(&word) || names.contains(&bare)).map(|(_, weekday)| *weekday)
}

fn dates(tokens: &[Token<'_>], text: &str, date_rules: DateRules) -> Vec<Date> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match numeric(&tokens[at..], text, date_rules).or_else(|| spelled(&tokens[at..], date_rules)) {
            Some((date, length)) => {
                found.push(date);
                at += length;
            }
            None => at += 1,
        }
    }
    found
}

/// `2026-11-15`, `15.11.`, `15.11.2026`, `15/11`, `11/15/2026`.
fn numeric(tokens: &[Token<'_>], text: &str, date_rules: DateRules) -> Option<(Date, usize)> {
    let [first, second, rest @ ..] = tokens else { return None };
    let (a, b) = (first.number()?, second.number()?);
    let gap = text.get(first.end..second.start)?;
    let third = rest.first().filter(|third| text.get(second.end..third.start).is_some_and(|next| next.trim() == gap.trim()));
    if first.folded.len() == 4 && gap == "-" {
        let day = third?.number()?;
        return Some((date(a, b, day)?, 3));
    }
    let year = third.and_then(Token::number);
    let closed = text[second.end..].starts_with('.');
    match gap.trim() {
        "." if year.is_some() || closed || date_rules.language == Language::German => {}
        "/" => {}
        "-" if year.is_some() => {}
        _ => return None,
    }
    let length = if year.is_some() { 3 } else { 2 };
    let year = year.map_or(i64::from(date_rules.today.year()), |year| if year < 100 { year + 2000 } else { year });
    let month_first = date_rules.american && gap.trim() == "/";
    let (month, day) = if month_first { (a, b) } else { (b, a) };
    Some((date(year, month, day).or_else(|| date(year, day, month))?, length))
}

/// `15. November`, `15 de noviembre de 2026`, `November 15th`.
fn spelled(tokens: &[Token<'_>], date_rules: DateRules) -> Option<(Date, usize)> {
    let word = |at: usize| tokens.get(at).map_or("", |token| token.folded.as_str());
    let number = |at: usize| tokens.get(at).and_then(Token::number);
    let link = |at: usize| usize::from(["de", "del", "of"].contains(&word(at)));
    let (day, month, mut next) = if let Some(month) = month_of(word(0)) {
        (number(1)?, month, 2)
    } else {
        let at = 1 + link(1);
        (number(0)?, month_of(word(at))?, at + 1)
    };
    let year_at = next + link(next);
    let year = number(year_at).filter(|year| (1900..=9999).contains(year));
    if year.is_some() {
        next = year_at + 1;
    }
    Some((date(year.unwrap_or_else(|| i64::from(date_rules.today.year())), i64::from(month), day)?, next))
}

fn date(year: i64, month: i64, day: i64) -> Option<Date> {
    Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()
}
