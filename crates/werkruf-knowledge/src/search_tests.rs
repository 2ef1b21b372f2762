use proptest::prelude::*;

use super::*;
use crate::IndexedChunk;

fn chunk(number: i64, language: Language, text: &str) -> IndexedChunk {
    IndexedChunk { number, document_id: format!("d{number}").into(), ordinal: 0, language: Some(language), text: text.to_owned() }
}

fn index(texts: &[(Language, &str)]) -> Index {
    let mut index = Index::default();
    for (number, (language, text)) in (0..).zip(texts) {
        assert!(index.add(&chunk(number, *language, text)));
    }
    index.update_compounds();
    index
}

fn query<'a>(text: &'a str) -> IndexQuery<'a> {
    IndexQuery { text, languages: &Language::ALL, vector: None, alpha: 0.4 }
}

fn first(index: &Index, text: &str) -> i64 {
    index.search(query(text), 10).first().map_or(-1, |hit| hit.number)
}

fn sample_index() -> Index {
    index(&[
        (Language::De, "Nicht genutzte Treuepunkte verfallen nach drei Jahren."),
        (Language::De, "Flug LH 9017 startet abends in München und ist ein Nachtflug."),
        (Language::De, "Das Sperrgepäck wird am Schalter für große Koffer abgegeben."),
        (Language::En, "Award seats can be cancelled until the day before departure."),
        (Language::Es, "La cancelación de los billetes cuesta cincuenta euros."),
        (Language::En, "Error E-7730 means that the payment was declined by the bank."),
        (Language::De, "Koffer und Gepäck dürfen zusammen dreißig Kilo wiegen."),
    ])
}

#[test]
fn other_inflections_spellings_and_parts_match() {
    let index = sample_index();
    for (question, expected) in [
        ("Wann verfällt ein Treuepunkt?", 0),
        ("LH9017", 1),
        ("lh-9017", 1),
        ("Muenchen", 1),
        ("grosser Koffer", 2),
        ("cancelling award seats", 3),
        ("cancelaciones", 4),
        ("E7730", 5),
        ("Punkte", 0),
    ] {
        assert_eq!(first(&index, question), expected, "{question}");
    }
}

#[test]
fn a_query_of_function_words_is_searched() {
    assert!(index(&[(Language::En, "To be or not to be")]).search(query("what is this"), 5).is_empty());
    let rare = index(&[(Language::De, "Wien was here"), (Language::De, "Graz")]);
    assert_eq!(first(&rare, "was"), -1, "the word was dropped when the chunk was read");
}

#[test]
fn coverage_does_not_depend_on_other_hits() {
    let index = sample_index();
    let coverage = |text: &str| index.search(query(text), 1).first().map_or(0.0, |hit| hit.coverage);
    assert!(coverage("Wann verfallen Treuepunkte?") > 0.9);
    assert!(coverage("Wie koche ich Spaghetti mit Koffer?") < 0.5);
}

#[test]
fn removed_chunks_are_not_found() {
    let mut index = sample_index();
    index.remove(1);
    index.remove(99);
    assert!(index.search(query("LH 9017 München Nachtflug"), 10).iter().all(|hit| hit.number != 1));
    assert_eq!(index.len(), 6);
}

#[test]
fn vectors_find_what_words_do_not() {
    let mut index = sample_index();
    for (number, vector) in [(0_i64, [1.0, 0.0, 0.0]), (3, [0.0, 1.0, 0.0]), (6, [0.0, 0.0, 1.0])] {
        assert!(index.put_vector(number, &vector));
    }
    let question = IndexQuery { vector: Some(&[0.1, 0.9, 0.0]), ..query("refund of a ticket") };
    let hits = index.search(question, 3);
    assert_eq!((hits[0].number, hits[0].rank_vector), (3, Some(1)));
    assert!(hits[0].similarity.unwrap() > 0.9);
}

/// The numbers of the hits for a query whose vector equals that of chunk `near`; all other vectors are orthogonal to it.
fn with_near_chunk(texts: &[&str], text: &str, near: i64) -> Vec<i64> {
    let mut index = index(&texts.iter().map(|text| (Language::En, *text)).collect::<Vec<_>>());
    for number in (0..).take(texts.len()) {
        assert!(index.put_vector(number, if number == near { &[1.0, 0.0] } else { &[0.0, 1.0] }));
    }
    let hits = index.search(IndexQuery { vector: Some(&[1.0, 0.0]), alpha: 0.6, ..query(text) }, 10);
    hits.iter().map(|hit| hit.number).collect()
}

#[test]
fn words_decide_if_few_chunks_have_all_of_them() {
    let forms = ["Form F1-1000 for the printer", "Form F2-2000 for the printer", "Form F1-3000 for the van", "A guide to the form"];
    assert_eq!(with_near_chunk(&forms, "F1-1000", 3)[0], 0);
    assert_eq!(with_near_chunk(&forms, "form F2 2000", 3)[0], 1);
    assert_eq!(with_near_chunk(&["The gardener is painting walls", "Rooms"], "painted", 1)[0], 0, "another form");
    // Among chunks with the same words the vectors decide.
    let copies = ["A permit for the van", "A permit for the van", "A permit for the van", "Nothing else"];
    assert_eq!(with_near_chunk(&copies, "van permits", 2)[0], 2);
}

#[test]
fn vectors_keep_their_weight_if_words_do_not_decide() {
    let many = ["award award award", "award a", "award b", "award c", "award d", "award e", "award f", "award g", "award h", "free seats"];
    assert_eq!(with_near_chunk(&many, "award", 4)[0], 4, "nine chunks have the word");
    assert_eq!(with_near_chunk(&many, "award cancellation", 9)[0], 9, "the collection does not contain the second word");
    assert_eq!(with_near_chunk(&["award award rules", "fees of banks", "free seats"], "award fees", 2)[0], 2, "no chunk has both words");
    let long = ["testing automated information systems", "libraries", "programs"];
    assert_eq!(with_near_chunk(&long, long[0], 1)[0], 1, "a query of four words");
}

#[test]
fn feedback_from_the_best_hits_breaks_a_tie() {
    // No text matches, and chunks 1 and 2 are equally far from the query; chunk 2 is closer to the best hit.
    let mut index = index(&[(Language::En, "alpha"), (Language::En, "beta"), (Language::En, "gamma"), (Language::En, "delta")]);
    for (number, vector) in [(0_i64, [1.0, 0.3]), (1, [0.6, -0.8]), (2, [0.6, 0.8]), (3, [-1.0, 0.0])] {
        assert!(index.put_vector(number, &vector));
    }
    let hits = index.search(IndexQuery { vector: Some(&[1.0, 0.0]), ..query("omega") }, 4);
    assert_eq!(hits.iter().map(|hit| hit.number).collect::<Vec<_>>(), [0, 2, 1, 3]);
    let of = |number: i64| hits.iter().find(|hit| hit.number == number).and_then(|hit| hit.similarity).unwrap();
    assert!((of(1) - of(2)).abs() < 0.01, "what is shown is the cosine with the question itself");
}

proptest! {
    /// The ranking depends on the rows only, not on the insertion order or on chunks that were removed again.
    #[test]
    fn the_order_of_arrival_does_not_matter(order in Just((0..12_i64).collect::<Vec<_>>()).prop_shuffle(), removed in 0..12_i64) {
        let words = ["miles", "award", "seat", "ticket", "flight", "baggage"];
        let text = |n: i64| {
            let pick = |k: i64| words[usize::try_from((n * k + n / 2) % 6).unwrap_or(0)];
            format!("{} {} {}", pick(1), pick(5), pick(7))
        };
        let build = |order: &[i64], extra: bool| {
            let mut index = Index::default();
            for number in order {
                index.add(&chunk(*number, Language::En, &text(*number)));
            }
            if extra {
                index.add(&chunk(77, Language::En, "award award miles"));
                index.update_compounds();
                index.remove(77);
            }
            index.remove(removed);
            index.update_compounds();
            index
        };
        let sorted: Vec<i64> = (0..12).collect();
        let (one, other) = (build(&sorted, false), build(&order, true));
        for question in ["award miles", "flights and seats", "bag"] {
            let numbers = |index: &Index| index.search(query(question), 12).iter().map(|hit| (hit.number, hit.bm25.to_bits())).collect::<Vec<_>>();
            prop_assert_eq!(numbers(&one), numbers(&other));
        }
    }
}
