//! Scales: where numbers lie between the two ends of an axis.

use super::markup::escaped;

/// An axis. Its ends are logarithms where it is logarithmic, and no numbers where it is an axis of none: nothing has a place on such.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    is_log: bool,
    least: f64,
    most: f64,
}

/// The part of its length that a logarithmic axis goes on behind its last numbers, and the least that it shows, in decades.
const MARGIN: f64 = 0.05;
const DECADES_MIN: f64 = 0.2;

/// About so many ticks does an axis have.
const TICKS: f64 = 6.0;

/// The decades of a logarithmic axis that all have a tick.
const DECADES_MAX: f64 = 8.0;

impl Scale {
    /// A logarithmic axis of those of these numbers that are finite and above zero.
    pub(super) fn log(numbers: impl IntoIterator<Item = f64>) -> Scale {
        let numbers = numbers.into_iter().filter(|number| number.is_finite() && *number > 0.0);
        let (least, most) = ends(numbers.map(f64::log10));
        let margin = ((most - least) * MARGIN).max((DECADES_MIN - (most - least)) / 2.0);
        Scale { is_log: true, least: least - margin, most: most + margin }
    }

    /// An axis of those of these numbers that are finite. It has zero on it.
    pub(super) fn linear(numbers: impl IntoIterator<Item = f64>) -> Scale {
        let numbers = numbers.into_iter().filter(|number| number.is_finite());
        let (least, most) = ends(numbers.flat_map(|number| [number, 0.0]));
        let most = if least == most { 1.0 } else { most };
        Scale { is_log: false, least, most }
    }

    fn part(&self, number: f64) -> f64 {
        let number = if self.is_log { number.log10() } else { number };
        (number - self.least) / (self.most - self.least)
    }

    /// Where a number lies, from 0 to 1; none if it lies nowhere: outside, no number, or not above zero on a logarithmic axis.
    pub(super) fn at(&self, number: f64) -> Option<f64> {
        Some(self.part(number)).filter(|part| (0.0..=1.0).contains(part))
    }

    /// The same; what lies outside lies at the nearer end.
    pub(super) fn clamped(&self, number: f64) -> f64 {
        let part = self.part(number);
        if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) }
    }

    /// Where numbers are written at the axis, and what is.
    pub(super) fn ticks(&self, tick: &dyn Fn(f64) -> String) -> Vec<(f64, String)> {
        let numbers = self.round_numbers().into_iter();
        numbers.filter_map(|number| Some((self.at(number)?, escaped(&tick(number))))).collect()
    }

    fn round_numbers(&self) -> Vec<f64> {
        let decades = self.most - self.least;
        let steps: &[f64] = match decades {
            _ if !decades.is_finite() => return Vec::new(),
            _ if !self.is_log => return round_steps(self.least, self.most),
            3.0.. => &[1.0],
            1.2.. => &[1.0, 3.0],
            0.7.. => &[1.0, 2.0, 5.0],
            _ => return round_steps(10f64.powf(self.least), 10f64.powf(self.most)),
        };
        let every = (decades / DECADES_MAX).ceil().max(1.0) as usize;
        let exponents = (self.least.floor() as i32..=self.most.ceil() as i32).step_by(every);
        let of = |exponent| steps.iter().map(move |step| step * 10f64.powi(exponent));
        exponents.flat_map(of).collect()
    }
}

/// The least and the greatest of some numbers; no numbers if there are none.
fn ends(numbers: impl Iterator<Item = f64>) -> (f64, f64) {
    // What is no number is neither less nor more than any.
    numbers.fold((f64::NAN, f64::NAN), |(least, most), one| (least.min(one), most.max(one)))
}

/// Multiples of 1, 2 or 5 times a power of ten between two ends.
fn round_steps(least: f64, most: f64) -> Vec<f64> {
    let rough = (most - least) / TICKS;
    let power = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|times| times * power);
    let step = steps.into_iter().find(|step| *step >= rough).unwrap_or(10.0 * power);
    let first = (least / step).ceil();
    // Rounding can bring one more within the ends.
    (0..=TICKS as u32 + 1)
        .map(|count| (first + f64::from(count)) * step)
        .filter(|tick| *tick <= most * (1.0 + 1e-12))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_NUMBERS: [f64; 5] = [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];

    /// The numbers that an axis has.
    fn ticks(scale: Scale) -> Vec<f64> {
        let ticks = scale.ticks(&|number| number.to_string());
        ticks.iter().map(|(_, text)| text.parse().unwrap()).collect()
    }

    #[test]
    fn logarithmic_axis_takes_what_has_a_logarithm() {
        let scale = Scale::log([10.0, 1000.0].into_iter().chain(NO_NUMBERS));
        assert!((scale.at(100.0).unwrap() - 0.5).abs() < 1e-9);
        assert!(scale.at(10.0).unwrap() > 0.0 && scale.at(1000.0).unwrap() < 1.0);
        assert_eq!(NO_NUMBERS.map(|number| scale.at(number)), [None; 5]);
        assert_eq!(NO_NUMBERS.map(|number| scale.clamped(number)), [0.0, 0.0, 0.0, 1.0, 0.0]);
        assert_eq!(ticks(scale), [10.0, 30.0, 100.0, 300.0, 1000.0]);
        for nothing in [Scale::log(NO_NUMBERS), Scale::log([]), Scale::linear([])] {
            assert_eq!(
                (ticks(nothing), nothing.at(1.0), nothing.clamped(1.0)),
                (vec![], None, 0.0)
            );
        }
    }

    #[test]
    fn one_number_has_an_axis_too() {
        for number in [5e-324, 1e-9, 7.0, f64::MAX] {
            let scale = Scale::log([number, number]);
            let at = scale.at(number).unwrap();
            assert!((at - 0.5).abs() < 1e-9, "{number}: {at}");
            assert!(ticks(scale).len() < 12);
        }
        assert_eq!(ticks(Scale::log([7.0])), [6.0, 7.0, 8.0]);
        assert_eq!(ticks(Scale::linear([0.0])).last(), Some(&1.0));
        assert_eq!(Scale::linear([-5.0]).at(0.0), Some(1.0));
    }

    #[test]
    fn axis_over_all_numbers_has_few_ticks() {
        let all = ticks(Scale::log([5e-324, f64::MAX]));
        assert!((3..12).contains(&all.len()) && all.iter().all(|tick| tick.is_finite()), "{all:?}");
        let beyond = Scale::linear([f64::MAX, -f64::MAX]);
        assert_eq!(ticks(beyond), [0.0; 0], "its length is no number");
        assert_eq!(ticks(Scale::linear([0.0, 60.0])), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
        assert_eq!(Scale::linear(NO_NUMBERS).at(-1.0), Some(0.0));
    }
}
