//! Checks the pages under `docs/errors`: the table lists every page, every page is short, and no link is broken.

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    /// The error codes of `werkruf-tools`.
    const CODES: [&str; 23] = [
        "bad_response",
        "canceled",
        "internal",
        "invalid_arguments",
        "rate_limited",
        "response_too_large",
        "tool_timeout",
        "upstream_error",
        "upstream_refused",
        "upstream_unreachable",
        "date_in_past",
        "date_too_far",
        "return_before_departure",
        "unknown_airport",
        "same_airports",
        "too_many_passengers",
        "unknown_program",
        "unknown_currency",
        "unknown_itinerary",
        "quota",
        "credentials",
        "timeout",
        "not_configured",
    ];

    fn docs() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
    }

    fn pages() -> BTreeSet<String> {
        let names = fs::read_dir(docs().join("errors")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter_map(|name| name.strip_suffix(".md").map(str::to_owned)).filter(|name| name != "README").collect()
    }

    /// The targets of a page's links, without links to other hosts.
    fn links(text: &str) -> Vec<&str> {
        text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).filter(|target| !target.contains("://")).collect()
    }

    #[test]
    fn the_table_lists_every_page() {
        let table = fs::read_to_string(docs().join("errors/README.md")).unwrap();
        let listed: BTreeSet<String> = links(&table).iter().map(|link| link.strip_suffix(".md").unwrap().to_owned()).collect();
        assert_eq!(listed, pages());
        for code in CODES {
            assert!(listed.contains(code), "{code} has no page");
        }
    }

    #[test]
    fn every_page_is_short_and_answers_who_acts_and_whether_to_retry() {
        for code in pages() {
            let page = fs::read_to_string(docs().join(format!("errors/{code}.md"))).unwrap();
            assert!(page.starts_with(&format!("# {code}\n")), "{code}");
            assert!(page.lines().count() <= 25, "{code} is too long");
            for part in ["**Who acts**", "**Retry**", "## What happened", "## What to do"] {
                assert!(page.contains(part), "{code} lacks {part}");
            }
        }
    }

    #[test]
    fn no_link_is_broken() {
        let mut files: Vec<PathBuf> = pages().iter().map(|code| docs().join(format!("errors/{code}.md"))).collect();
        files.extend(["writing-a-tool.md", "flights.md"].map(|page| docs().join(page)));
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            for link in links(&text) {
                let page = link.split('#').next().unwrap();
                assert!(file.parent().unwrap().join(page).exists(), "{}: {link}", file.display());
            }
        }
    }
}
