use proptest::prelude::*;

use super::*;

#[test]
fn paragraphs_stay_whole_and_share_a_chunk_under_one_heading() {
    let text = "# Meilen\n\nErster Absatz.\n\nZweiter Absatz.\n\n## Verfall\n\nDritter Absatz.";
    let found = chunks(text);
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].heading.as_str(), found[0].content.as_str()), ("Meilen", "Erster Absatz.\n\nZweiter Absatz."));
    assert_eq!((found[1].heading.as_str(), found[1].content.as_str()), ("Meilen > Verfall", "Dritter Absatz."));
}

#[test]
fn a_long_paragraph_is_split_at_sentences_with_one_sentence_of_overlap() {
    let text: String = (0..60).map(|n| format!("Dies ist der Satz mit der Nummer {n} und noch ein paar Worten. ")).collect();
    let found = chunks(&text);
    assert!(found.len() > 2);
    for pair in found.windows(2) {
        let last = sentences(&pair[0].content).last().copied().unwrap().to_owned();
        assert!(pair[1].content.starts_with(&last), "{last}");
        assert!(count(&pair[0].content) <= LIMIT);
    }
    let sizes: Vec<usize> = found.iter().map(|chunk| count(&chunk.content)).collect();
    assert!(sizes.iter().all(|size| *size > sizes[0] / 2), "nothing small is left over: {sizes:?}");
}

#[test]
fn code_and_tables_are_not_split() {
    let rows: String = (0..80).map(|n| format!("| {n} | a cell with some words |\n")).collect();
    let code = format!("```\n{}\n\n# no heading\n```", "let x = 1;\n".repeat(150));
    let found = chunks(&format!("Before.\n\n{rows}\n\n{code}\n\nAfter."));
    assert!(found.iter().any(|chunk| chunk.content.contains("| 0 |") && chunk.content.contains("| 79 |")));
    assert!(found.iter().any(|chunk| chunk.content.starts_with("```") && chunk.content.contains("# no heading\n```")));
    assert!(found.iter().all(|chunk| chunk.heading.is_empty()));
}

#[test]
fn a_heading_without_text_is_a_chunk() {
    let found = chunks("# A\n\n## Empty\n\n## Full\n\nText.");
    assert_eq!(found.iter().map(|chunk| chunk.heading.as_str()).collect::<Vec<_>>(), ["A > Empty", "A > Full"]);
}

#[test]
fn a_line_that_is_too_long_for_a_heading_is_a_paragraph() {
    let long = format!("# {}last", "word ".repeat(MAX_HEADING / 5));
    let found = chunks(&format!("# A\n\n{long}\n\nText."));
    assert_eq!(found, [Chunk { heading: "A".to_owned(), content: format!("{long}\n\nText.") }]);
}

#[test]
fn an_empty_document_has_no_chunks() {
    assert!(chunks(" \n\n\t\n").is_empty());
}

proptest! {
    #[test]
    fn every_word_is_in_a_chunk_and_no_chunk_is_endless(text in "([a-zäß#|`.!? ]{0,80}\n{0,3}){0,60}") {
        let found = chunks(&text);
        let all: String = found.iter().flat_map(|chunk| [chunk.heading.as_str(), " ", chunk.content.as_str(), " "]).collect();
        for word in text.split(|letter: char| !letter.is_alphabetic()).filter(|word| !word.is_empty()) {
            prop_assert!(all.contains(word), "{word} is lost");
        }
        for chunk in &found {
            prop_assert!(!chunk.content.trim().is_empty());
            prop_assert!(count(&chunk.content) <= INDIVISIBLE_LIMIT);
        }
    }
}
