//! The figures of the README are those of docs/benchmark.md, and the README has no others.

const README: &str = include_str!("../../../../README.md");
const BENCHMARK: &str = include_str!("../../../../docs/benchmark.md");
const UNITS: [&str; 6] = ["ms", "MiB", "MB", "GB", "times", "%"];

/// The text before, between and after the marks that `bench/publish` writes between.
fn parts(page: &str) -> (&str, &str, &str) {
    let (before, rest) = page.split_once("<!-- bench/publish -->\n").unwrap();
    let (figures, after) = rest.split_once("<!-- end -->").unwrap();
    (before, figures, after)
}

/// Lines outside code blocks with a number that a unit follows.
fn with_figures(text: &str) -> Vec<&str> {
    let is_number = |word: &str| word.starts_with(|letter: char| letter.is_ascii_digit());
    let is_unit = |word: &str| UNITS.contains(&word.trim_end_matches([',', '.', ';', ')', '|']));
    let mut in_code = false;
    let prose = text.lines().filter(|line| {
        in_code ^= line.starts_with("```");
        !in_code
    });
    prose
        .filter(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.windows(2).any(|pair| is_number(pair[0].trim_start_matches('(')) && is_unit(pair[1]))
        })
        .collect()
}

#[test]
fn the_readme_has_the_figures_of_the_benchmark_and_no_others() {
    let (before, figures, after) = parts(README);
    assert_eq!(figures, parts(BENCHMARK).1, "`make figures` writes both");
    assert_eq!(with_figures(before), Vec::<&str>::new());
    assert_eq!(with_figures(after), Vec::<&str>::new());
}

#[test]
fn figures_are_found() {
    assert_eq!(with_figures("takes 1.2 ms.\n```\n3 ms\n```\n(0.5 MiB), or 4 turns"), ["takes 1.2 ms.", "(0.5 MiB), or 4 turns"]);
}
