//! The machine that is measured: facts that stand with every result, and what may spoil one.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// What is known of the machine and of this build.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Model of the processors.
    pub processor: String,
    /// Processors that may be used.
    pub processors: usize,
    /// Those that the parties of the trial run on, in the order of their roles; none if the kernel chose.
    pub pinned: Option<Vec<usize>>,
    /// Version of the kernel.
    pub kernel: String,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Whether there is another machine below.
    pub is_virtual: bool,
    /// How the kernel chooses the processors' speed, if it says.
    pub governor: Option<String>,
    /// Version of the processors' microcode, if they say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub microcode: Option<String>,
    /// The faults of the processors that the kernel works around, which costs something with each call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mitigations: Vec<String>,
    /// When memory gets huge pages by itself: `always`, `madvise` or `never`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub huge_pages: Option<String>,
    /// What idles the processors, if the kernel says: deep sleep is slow to leave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_driver: Option<String>,
    /// Processes that wanted to run in the minute before, on average.
    pub load: f64,
    /// Version of siga.
    pub siga: String,
    /// Whether this is a build for debugging, whose figures mean nothing.
    pub is_debug: bool,
}

/// A fact about a machine, and what it is called.
pub type Fact = (&'static str, fn(&Machine) -> String);

/// What stays as it is during a run. Empty is what the kernel does not say.
pub const FACTS: [Fact; 12] = [
    ("processor", |machine| machine.processor.clone()),
    ("processors", |machine| machine.processors.to_string()),
    ("kernel", |machine| machine.kernel.clone()),
    ("microcode", |machine| machine.microcode.clone().unwrap_or_default()),
    ("mitigations", |machine| machine.mitigations.join(", ")),
    ("huge pages", |machine| machine.huge_pages.clone().unwrap_or_default()),
    ("idle driver", |machine| machine.idle_driver.clone().unwrap_or_default()),
    ("memory", |machine| format!("{} GiB", machine.memory_bytes >> 30)),
    ("virtual machine", |machine| if machine.is_virtual { "yes" } else { "no" }.to_owned()),
    ("governor", |machine| machine.governor.clone().unwrap_or_else(|| "unknown".to_owned())),
    ("siga", |machine| machine.siga.clone()),
    ("build", |machine| if machine.is_debug { "debug" } else { "release" }.to_owned()),
];

impl Machine {
    /// This machine, now.
    pub fn here() -> Machine {
        let allowed = os::processor::allowed();
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let information = read("/proc/cpuinfo");
        let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
        let said = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        Machine {
            processor: field(&information, "model name").unwrap_or("unknown").to_owned(),
            processors: allowed.len(),
            pinned: None,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_bytes: memory_bytes(&read("/proc/meminfo")).unwrap_or_default(),
            is_virtual: field(&information, "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            governor: said(&governor),
            microcode: field(&information, "microcode").map(str::to_owned),
            mitigations: mitigations(Path::new("/sys/devices/system/cpu/vulnerabilities")),
            huge_pages: chosen(&read("/sys/kernel/mm/transparent_hugepage/enabled")),
            idle_driver: said(&read("/sys/devices/system/cpu/cpuidle/current_driver"))
                .filter(|driver| driver != "none"),
            load: load(&read("/proc/loadavg")).unwrap_or_default(),
            siga: env!("CARGO_PKG_VERSION").to_owned(),
            is_debug: cfg!(debug_assertions),
        }
    }

    /// Whether other programs kept the processors busy before the run.
    pub fn is_busy(&self) -> bool {
        self.load / self.processors.max(1) as f64 > BUSY_LOAD_MIN
    }

    /// What spoils the results, in sentences; nothing if nothing does.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.is_debug {
            warnings.push(
                "this is a debug build, its figures mean nothing: cargo build --release".into(),
            );
        }
        if self.processors == 1 {
            warnings.push(
                "there is only one processor: both sides share it, and nothing runs at the same time"
                    .into(),
            );
        }
        if self.is_busy() {
            warnings.push(format!(
                "the machine was busy before the run, {:.1} of {} processors: the figures are too low, \
                 and their spread is too wide",
                self.load, self.processors
            ));
        }
        if let Some(governor) = self.governor.as_deref().filter(|name| *name != "performance") {
            warnings.push(format!(
                "the processors' governor is {governor}: with \"performance\" the spread is narrower"
            ));
        }
        warnings
    }

    /// The processors that the parties were given.
    pub fn placing(&self) -> String {
        match self.pinned.as_deref() {
            Some([one, other]) => format!("guests on {one} and {other}"),
            Some(all) => format!("parties on {all:?}"),
            None => "guests not pinned".into(),
        }
    }

    /// One line.
    pub fn line(&self) -> String {
        let Machine { processor, processors, kernel, siga, .. } = self;
        let below = if self.is_virtual { ", virtual" } else { "" };
        let gigabytes = self.memory_bytes >> 30;
        let build = if self.is_debug { "debug" } else { "release" };
        let pinned = self.placing();
        format!(
            "{processor}, {processors} processors ({pinned}){below}, {gigabytes} GiB, Linux {kernel}, \
             siga {siga} {build}"
        )
    }
}

/// Part of the processors that may be at work before a run without a warning.
const BUSY_LOAD_MIN: f64 = 0.3;

/// The processors of this process, in the order in which they are given to parties: the first two for the two
/// guests of most trials, then the others, the last first.
pub fn processors() -> Vec<usize> {
    given_away(&os::processor::allowed(), siblings, neighbours)
}

/// Two processors on different cores that share their last cache if there are such, so that the distance is of the same kind
/// each time, then the others. The first of many serve most interrupts, so the last are taken.
fn given_away(
    allowed: &[usize],
    siblings: impl Fn(usize) -> Vec<usize>,
    neighbours: impl Fn(usize) -> Vec<usize>,
) -> Vec<usize> {
    let Some((last, others)) = allowed.split_last() else { return Vec::new() };
    let (together, near) = (siblings(*last), neighbours(*last));
    let mut apart = others.iter().rev().filter(|processor| !together.contains(processor));
    let nearest = apart.clone().find(|processor| near.contains(processor));
    let other = nearest.or_else(|| apart.next()).or(others.last());
    let rest = others.iter().rev().filter(|processor| Some(*processor) != other);
    other.into_iter().chain([last]).chain(rest).copied().collect()
}

/// The processors that share the last cache with this one: the last of those that are there.
fn neighbours(processor: usize) -> Vec<usize> {
    list_of(processor, "cache/index3/shared_cpu_list")
        .or_else(|| list_of(processor, "cache/index2/shared_cpu_list"))
        .unwrap_or_default()
}

/// The processors that share a core with this one.
fn siblings(processor: usize) -> Vec<usize> {
    list_of(processor, "topology/thread_siblings_list").unwrap_or_default()
}

/// The processors in a file that the kernel has of this one.
fn list_of(processor: usize, file: &str) -> Option<Vec<usize>> {
    let file = format!("/sys/devices/system/cpu/cpu{processor}/{file}");
    Some(list(fs::read_to_string(file).ok()?.trim()))
}

/// The names of the faults in this directory of the kernel that are worked around.
fn mitigations(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let is_met =
        |path: &Path| fs::read_to_string(path).is_ok_and(|text| text.starts_with("Mitigation"));
    let names = entries.filter(|entry| is_met(&entry.path()));
    let mut names: Vec<String> =
        names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

/// The choice that the kernel has put in brackets: `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(chosen, _)| chosen.to_owned())
}

/// A list as the kernel writes it: `0-2,8`.
fn list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse::<usize>().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim())
}

fn memory_bytes(text: &str) -> Option<u64> {
    let kibibytes = field(text, "MemTotal")?.split(' ').next()?;
    kibibytes.parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
}

fn load(text: &str) -> Option<f64> {
    text.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_get_cores_of_their_own() {
        let alone = |processor: usize| vec![processor];
        let in_pairs = |processor: usize| vec![processor & !1, processor | 1];
        let all = |_: usize| (0..8).collect::<Vec<_>>();
        assert_eq!(given_away(&[0, 1], alone, all), [0, 1]);
        assert_eq!(given_away(&[0, 1, 2, 3], in_pairs, all), [1, 3, 2, 0]);
        assert_eq!(
            given_away(&[6, 7], in_pairs, all),
            [6, 7],
            "one core is better than one thread"
        );
        assert_eq!(given_away(&[5], alone, all), [5]);
        assert_eq!(given_away(&[], alone, all), Vec::<usize>::new());
        // Caches of every second core, as where nodes take turns.
        let every_second =
            |processor: usize| (processor & 2..8).step_by(4).flat_map(|at| [at, at + 1]).collect();
        let pair = |allowed: &[usize]| given_away(allowed, in_pairs, every_second)[..2].to_vec();
        assert_eq!(pair(&[0, 1, 2, 3, 4, 5, 6, 7]), [3, 7]);
        assert_eq!(pair(&[4, 5, 6, 7]), [5, 7], "none shares it");
        assert_eq!(chosen("always [madvise] never\n").as_deref(), Some("madvise"));
        assert_eq!(chosen("never"), None);
        assert_eq!(list("0-2,8"), [0, 1, 2, 8]);
        assert_eq!(list(""), Vec::<usize>::new());
    }

    #[test]
    fn facts_are_found_where_the_kernel_writes_them() {
        let text =
            "processor\t: 0\nmodel name\t: Some(R) CPU @ 2 GHz\nflags\t\t: fpu hypervisor x\n";
        assert_eq!(field(text, "model name"), Some("Some(R) CPU @ 2 GHz"));
        assert_eq!(memory_bytes("MemTotal:       1024 kB\nMemFree: 1 kB\n"), Some(1 << 20));
        assert_eq!(load("0.25 0.66 0.64 1/99 1\n"), Some(0.25));
        let here = Machine::here();
        assert!(here.processors > 0 && !here.kernel.is_empty() && here.memory_bytes > 0);
    }

    #[test]
    fn what_spoils_results_is_said() {
        let good = Machine {
            processors: 2,
            pinned: Some(vec![0, 1]),
            governor: Some("performance".into()),
            ..Machine::default()
        };
        assert!(good.warnings().is_empty());
        let governor = Some("powersave".into());
        let bad = Machine { is_debug: true, processors: 2, load: 1.5, governor, ..good };
        let warnings = bad.warnings().join("\n");
        for word in ["debug build", "1.5 of 2 processors", "powersave"] {
            assert!(warnings.contains(word), "{warnings}");
        }
        let small = Machine { processors: 1, ..Machine::default() };
        assert!(small.warnings().join("").contains("one processor"));
    }
}
