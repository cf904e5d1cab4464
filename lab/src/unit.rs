//! Units: how the numbers of results are shown to people.

use std::borrow::Cow;

use serde::Deserialize;

/// A unit for people.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Unit {
    /// In a heading: `million messages/s`.
    pub label: Cow<'static, str>,
    /// Behind a number, where the heading already says what is counted: `million/s`.
    pub short: Cow<'static, str>,
    /// One of this unit, in the unit of the results.
    pub scale: f64,
}

const fn unit(label: &'static str, scale: f64) -> Unit {
    Unit { label: Cow::Borrowed(label), short: Cow::Borrowed(label), scale }
}

/// The units of times.
pub const TIME: &[Unit] = &[unit("ns", 1.0), unit("µs", 1e3), unit("ms", 1e6), unit("s", 1e9)];
/// The units of sizes.
pub const BYTES: &[Unit] = &[unit("B", 1.0), unit("KiB", 1024.0), unit("MiB", 1_048_576.0)];
/// Of what has no unit.
pub const PLAIN: &[Unit] = &[unit("", 1.0)];

/// The unit of this label.
pub fn named<'a>(units: &'a [Unit], label: &str) -> Option<&'a Unit> {
    units.iter().find(|unit| unit.label == label || unit.short == label)
}

/// The unit for one number: the greatest of which it is at least one.
///
/// # Panics
/// If there are no units.
pub fn for_one(units: &[Unit], number: f64) -> &Unit {
    let is_whole = |unit: &&Unit| number.abs() >= 0.9995 * unit.scale;
    units.iter().rev().find(is_whole).unwrap_or(&units[0])
}

/// The numbers that a unit shows well: from the first bound, or else from the second, to [`SHOWN_MAX`].
const SHOWN_MIN: [f64; 2] = [0.5, 0.1];
const SHOWN_MAX: f64 = 9999.5;

/// The greatest unit that shows all of these numbers well; none if each needs its own.
///
/// # Panics
/// If there are no units.
pub fn for_all(units: &[Unit], numbers: impl IntoIterator<Item = f64>) -> Option<&Unit> {
    let numbers = numbers.into_iter().map(f64::abs).filter(|number| *number > 0.0);
    let numbers: Vec<f64> = numbers.collect();
    if units.len() == 1 || numbers.is_empty() {
        return units.first();
    }
    let suits = |unit: &&Unit, least: f64| {
        numbers.iter().all(|number| (least..SHOWN_MAX).contains(&(number / unit.scale)))
    };
    let found = |least| units.iter().rev().find(|unit| suits(unit, least));
    SHOWN_MIN.into_iter().find_map(found)
}

/// What `text` says at a scale: that of the unit that all numbers share, which their heading names; or else of the unit that suits
/// `number`, which stands behind.
///
/// # Panics
/// If there are no units.
pub fn show(
    units: &[Unit],
    shared: Option<&Unit>,
    number: f64,
    text: impl Fn(f64) -> String,
) -> String {
    let Some(shared) = shared else {
        let own = for_one(units, number);
        return format!("{} {}", text(own.scale), own.short).trim_end().to_owned();
    };
    text(shared.scale)
}

/// A figure with its interval, as [`show`] has it: `1.02 (0.990..1.05) µs`. Without an interval the figure alone.
///
/// # Panics
/// If there are no units.
pub fn show_interval(
    units: &[Unit],
    shared: Option<&Unit>,
    figure: f64,
    interval: Option<(f64, f64)>,
) -> String {
    show(units, shared, figure, |scale| {
        let ends = interval.map(|(least, most)| [least, most].map(|end| three_digits(end / scale)));
        let ends = ends.map_or(String::new(), |[least, most]| format!(" ({least}..{most})"));
        three_digits(figure / scale) + &ends
    })
}

/// A number with three significant digits.
pub fn three_digits(number: f64) -> String {
    let magnitude = number.abs();
    let places = match magnitude {
        // What is left of a difference of equals.
        m if m < 5e-7 => return "0".to_owned(),
        m if m >= 99.95 => 0,
        m if m >= 9.995 => 1,
        m if m >= 0.9995 => 2,
        // 0.01234 is 0.0123.
        m => (2 - m.log10().floor() as i32).clamp(0, 6) as usize,
    };
    format!("{number:.places$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_of_one_number_is_the_greatest_that_is_whole() {
        let label = |units, number| &*for_one(units, number).label;
        assert_eq!(label(BYTES, 1_048_000.0), "KiB");
        assert_eq!(label(BYTES, 1_048_300.0), "MiB", "it is shown as 1.00");
        assert_eq!(label(TIME, 212_053.0), "µs");
        assert_eq!(label(TIME, -2e9), "s");
        assert_eq!(label(TIME, 0.0), "ns");
        assert_eq!(label(PLAIN, 5.0), "");
    }

    #[test]
    fn numbers_share_a_unit_if_one_shows_all_of_them() {
        let label =
            |numbers: &[f64]| for_all(TIME, numbers.iter().copied()).map(|unit| &*unit.label);
        assert_eq!(label(&[770.0, 1800.0]), Some("µs"));
        assert_eq!(label(&[120.0, 130.0]), Some("ns"));
        assert_eq!(label(&[31.0, 0.0, 1057.0]), Some("ns"));
        assert_eq!(label(&[100.0, 900_000.0]), Some("µs"));
        assert_eq!(label(&[31.0, 1_000_000.0]), None);
        assert_eq!(label(&[0.0]), Some("ns"));
        assert_eq!(label(&[]), Some("ns"));
        assert_eq!(for_all(PLAIN, [0.001]).unwrap().label, "", "there is no other");
    }

    #[test]
    fn unit_is_found_by_its_label_or_its_short_form() {
        let messages =
            [unit("messages/s", 1.0), Unit { short: "k/s".into(), ..unit("thousand", 1e3) }];
        assert_eq!(named(&messages, "k/s").unwrap().scale, 1e3);
        assert_eq!(named(&messages, "thousand").unwrap().scale, 1e3);
        assert_eq!(named(&messages, "GB/s"), None);
    }

    #[test]
    fn three_digits_are_significant() {
        for (number, text) in [
            (0.0, "0"),
            (123_456.0, "123456"),
            (99.96, "100"),
            (12.34, "12.3"),
            (1.234, "1.23"),
            (0.9996, "1.00"),
            (0.1234, "0.123"),
            (0.01234, "0.0123"),
            (-5.678, "-5.68"),
        ] {
            assert_eq!(three_digits(number), text);
        }
    }
}
