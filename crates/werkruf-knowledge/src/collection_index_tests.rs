use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::{ChangeMark, Hit, IndexQuery};

/// Analyses and adds chunks.
fn add_rows(target: &SharedIndex, rows: Vec<ChangedChunk>, removed: &mut Removed) -> bool {
    let languages = target.blocking_read().languages_with(&rows);
    add_chunks(target, analyse(rows, &languages), removed)
}

const WORDS: [&str; 16] = [
    "prämie",
    "meilen",
    "prämienmeilen",
    "meilenprämie",
    "gepäck",
    "grenze",
    "gepäckgrenze",
    "flug",
    "nachtflug",
    "award",
    "awards",
    "seat",
    "LH 441",
    "lh441",
    "tarifa",
    "tarifas",
];
const QUESTIONS: [&str; 6] = ["Prämienmeilen", "meilen award", "Gepäck Grenzen", "LH-441 seats", "flug", "tarifas de gepäckgrenze"];

/// A change of a collection of a few documents.
#[derive(Debug, Clone)]
enum Change {
    /// Adds or replaces a document with these chunks.
    Put {
        document: usize,
        language: usize,
        chunks: Vec<Vec<usize>>,
    },
    Delete {
        document: usize,
    },
    /// Sets the vector of the n-th chunk.
    Vector {
        chunk: usize,
        vector: [i8; 4],
    },
    /// Compares the parts of compounds with the vocabulary.
    Maintain,
}

fn change() -> impl Strategy<Value = Change> {
    let chunks = vec(vec(0..WORDS.len(), 0..8), 1..4);
    prop_oneof![
        4 => (0..6_usize, 0..3_usize, chunks).prop_map(|(document, language, chunks)| Change::Put { document, language, chunks }),
        1 => (0..6_usize).prop_map(|document| Change::Delete { document }),
        3 => (0..20_usize, any::<[i8; 4]>()).prop_map(|(chunk, vector)| Change::Vector { chunk, vector }),
        1 => Just(Change::Maintain),
    ]
}

/// The rows of the collection, as a database has them.
#[derive(Default)]
struct Rows {
    chunks: Vec<ChangedChunk>,
    vectors: Vec<ChangedVector>,
    next: i64,
}

impl Rows {
    fn put(&mut self, document: usize, language: usize, chunks: &[Vec<usize>]) -> (Vec<ChangedChunk>, Vec<i64>) {
        let removed = self.delete(document);
        let row = |(position, words): (u32, &Vec<usize>)| {
            let text: Vec<&str> = words.iter().map(|word| WORDS[*word]).collect();
            ChangedChunk {
                mark: ChangeMark { change: 1, chunk: self.next + i64::from(position) },
                document_id: format!("d{document}").into(),
                position,
                language: Some(Language::ALL[language].code().to_owned()),
                guessed: false,
                title: String::new(),
                heading: String::new(),
                content: text.join(" "),
            }
        };
        let new: Vec<ChangedChunk> = (0..).zip(chunks).map(row).collect();
        self.next += 10;
        self.chunks.extend(new.iter().cloned());
        (new, removed)
    }

    fn delete(&mut self, document: usize) -> Vec<i64> {
        let name = format!("d{document}");
        let removed: Vec<i64> = self.chunks.iter().filter(|row| *row.document_id == *name).map(|row| row.mark.chunk).collect();
        self.chunks.retain(|row| *row.document_id != *name);
        self.vectors.retain(|row| !removed.contains(&row.mark.chunk));
        removed
    }

    fn vector(&mut self, chunk: usize, vector: [i8; 4]) -> Option<ChangedVector> {
        let mark = self.chunks.get(chunk)?.mark;
        let new = ChangedVector { mark, vector: vector.iter().map(|value| f32::from(*value)).collect() };
        // A vector without a direction is not indexed, so it does not replace another one.
        QuantizedVector::of(&new.vector)?;
        self.vectors.retain(|row| row.mark.chunk != mark.chunk);
        self.vectors.push(new.clone());
        Some(new)
    }

    fn languages(&self) -> Vec<LanguageCount> {
        let mut documents = DocumentLanguages::default();
        self.chunks.iter().for_each(|row| documents.add(&row.document_id, row.language.as_deref(), row.guessed));
        documents.counts
    }
}

fn maintain(target: &SharedIndex) {
    let mut next = Some(0);
    while let Some(from) = next {
        next = compare_parts(target, from);
    }
}

fn apply(target: &SharedIndex, rows: &mut Rows, change: &Change, number: i64) {
    match change {
        Change::Put { document, language, chunks } => {
            let (new, removed) = rows.put(*document, *language, chunks);
            let mut removed = target.blocking_read().by_document(removed);
            assert!(add_rows(target, new, &mut removed));
            remove_chunks(target, removed);
        }
        Change::Delete { document } => {
            let removed = target.blocking_read().by_document(rows.delete(*document));
            remove_chunks(target, removed);
        }
        Change::Vector { chunk, vector } => put_vectors(target, rows.vector(*chunk, *vector).as_slice()),
        Change::Maintain => maintain(target),
    }
    target.blocking_write().finish(number);
}

/// An index that is built from the rows.
fn built(rows: &Rows) -> SharedIndex {
    let target: SharedIndex = Arc::new(RwLock::new(CollectionIndex::of(&rows.languages())));
    assert!(add_rows(&target, rows.chunks.clone(), &mut Removed::new()));
    put_vectors(&target, &rows.vectors);
    target.blocking_write().index.update_compounds();
    target.blocking_write().finish(1);
    target
}

/// Every hit with every score.
fn hits(target: &SharedIndex, text: &str, vector: Option<&[f32]>) -> Vec<Hit> {
    let index = target.blocking_read();
    let query = IndexQuery { text, languages: index.languages.languages(), vector, alpha: index.languages.alpha(&[]) };
    index.index.search(query, 100)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// An index that took every change equals one that is built from the rows, to the last bit of every score.
    #[test]
    fn an_index_that_follows_equals_one_that_is_built(changes in vec(change(), 1..40)) {
        let (target, mut rows) = (SharedIndex::default(), Rows::default());
        for (number, change) in (1_i64..).zip(&changes) {
            apply(&target, &mut rows, change, number);
        }
        maintain(&target);
        let scratch = built(&rows);
        prop_assert_eq!(&target.blocking_read().languages, &scratch.blocking_read().languages);
        prop_assert_eq!(target.blocking_read().index.len(), rows.chunks.len());
        for question in QUESTIONS {
            for vector in [None, Some([1.0, 0.5, -0.25, 0.1].as_slice())] {
                prop_assert_eq!(hits(&target, question, vector), hits(&scratch, question, vector), "{}", question);
            }
        }
    }
}

#[test]
fn chunks_of_a_language_that_became_frequent_are_analysed_again() {
    let row = |number: i64, language: &str| ChangedChunk {
        mark: ChangeMark { change: 1, chunk: number },
        document_id: format!("d{number}").into(),
        position: 0,
        language: Some(language.to_owned()),
        guessed: true,
        title: String::new(),
        heading: String::new(),
        content: "Prämienmeilen".to_owned(),
    };
    let target = SharedIndex::default();
    let put = |rows: Vec<ChangedChunk>| {
        assert!(add_rows(&target, rows, &mut Removed::new()));
        target.blocking_write().finish(1);
    };
    put((0..60).map(|number| row(number, "en")).collect());
    put(vec![row(60, "de")]);
    assert!(!target.blocking_read().needs_rebuild(), "one German text in sixty is taken for a wrong guess");
    put((61..70).map(|number| row(number, "de")).collect());
    assert!(target.blocking_read().needs_rebuild(), "ten are German");
}
