//! Results that older labs wrote: a line of each form that there was. They are read, or refused by name.

use std::path::Path;

use lab::record::{self, Record};
use lab::report::{Wishes, compare, figures, report, text};

/// The first form, of 2026-11-21: metrics without quantities, and the case as it was then.
const FIRST: &str = "2026-11-21.jsonl";

/// With quantities of each party, and without the state of the machine.
const QUANTITIES: &str = "2026-11-25.jsonl";

fn read(name: &str) -> Vec<Record> {
    record::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/results").join(name)).unwrap()
}

#[test]
fn results_of_older_labs_are_shown_with_their_tables() {
    for (name, figures_min, parts) in [
        (FIRST, 10, ["messages ÷ unix-stream", " path            41.5 ±1% ", "CPU per message"]),
        (QUANTITIES, 6, ["messages/s", " pipe ", "0 of 3 claims hold here, 3 are not measured."]),
    ] {
        let records = read(name);
        assert!(figures(&records).len() >= figures_min, "{name}");
        let shown = text(&report(&records), 100);
        for part in parts {
            assert!(shown.contains(part), "{part}\nis not in\n{shown}");
        }
        assert!(!shown.contains("without the claims and tables"), "{shown}");
    }
}

#[test]
fn case_that_this_lab_does_not_know_is_named_and_its_figures_are_shown() {
    let mut records = read(FIRST);
    for record in &mut records {
        let text = record.definition.take();
        record.definition = text.map(|text| text.replace("warm_up_seconds", "warming_seconds"));
    }
    let shown = text(&report(&records), 100).replace("\n  ", " ");
    let why =
        "Warning: without the claims and tables of the case as it was then: message-stream:11: ";
    assert!(shown.contains(why), "{shown}");
    assert!(shown.contains("41.5"), "{shown}");
}

#[test]
fn results_of_two_forms_are_compared() {
    let (first, later) = (read(FIRST), read(QUANTITIES));
    let wishes = Wishes { all: true, margin_percent: 5.0 };
    assert_eq!(compare(&first, &first, wishes).compared.len(), 10);
    let found = compare(&first, &later, wishes);
    assert_eq!(found.compared, []);
    let shown = text(&found.report("first", "later", wishes), 100);
    assert!(
        shown.contains("Not compared: message-stream: one of them is of a debug build"),
        "{shown}"
    );
}
