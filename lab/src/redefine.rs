//! Results that were kept, shown as a case that was edited after the run says.

use crate::case::Case;
use crate::definition::values;
use crate::record::{Record, Tables};

/// Lets the results of a case be shown by another definition of the case: its tables and claims count, and
/// its metrics are computed from what the parties have reported. Results of older labs, which have no
/// parties, keep the metrics that they have.
pub fn redefine(records: &mut [Record], case: &Case) {
    for record in records.iter_mut().filter(|record| record.case == case.name) {
        if record.definition.is_some() {
            record.definition = Some(case.text.to_string());
            record.published = Tables::of(case);
        }
        if !record.parties.is_empty() {
            // A definition that gives nothing now must not leave what an older one gave.
            for metric in &case.metrics {
                record.metrics.remove(&metric.name);
            }
            record.metrics.extend(values(case, &record.parties));
        }
    }
}

#[cfg(test)]
mod tests {
    use host::config::Source;

    use super::*;
    use crate::record;

    const OLD: &str = r#"{"case":"mine","system":"open","trial":1,"factors":{},"metrics":{"rate_bytes_per_s":5.5},"counters":{},"machine":{"pinned":[0,1]},"run":7,"seconds":0.5,"definition":"?"}"#;
    const NEW: &str = r#"{"case":"mine","system":"open","trial":2,"factors":{},"metrics":{},"counters":{},"parties":[{"role":"target","number":0,"place":[1],"report":{"messages":9,"window_ns":1000000000,"work":{"bytes":3000,"messages":9},"cpu":[],"counters":{"rings":6}}}],"machine":{},"run":7,"seconds":0.5}"#;
    const CASE: &str = "name = \"mine\"\nasks = \"?\"\nworkload = \"message-stream\"\ntrials = 1\n\
        seconds = 1\nwarm_up_seconds = 0\n[[metric]]\nname = \"rings\"\nquantity = \"counter\"\n\
        kind = \"rings\"\nper = \"message\"\n";

    #[test]
    fn metrics_that_were_defined_after_the_run_are_computed_from_the_parties() {
        let mut records =
            record::parse(&Source::of("r.jsonl", &format!("{OLD}\n{NEW}\n"))).unwrap();
        let case = Case::parse(&Source::of("c.toml", CASE), &|_| unreachable!("it names none"));
        redefine(&mut records, &case.unwrap());
        assert_eq!(records[0].metrics.len(), 1, "a line of an older lab has its metrics only");
        assert_eq!(records[0].definition.as_deref(), Some(CASE));
        assert_eq!(records[1].metrics["rate_bytes_per_s"], 3000.0);
        // Nobody says that the target's rings are another's: both roles count, and the target has them.
        assert_eq!(records[1].metrics["rings"], 6.0 / 9.0);
        assert_eq!(records[1].definition, None);
    }
}
