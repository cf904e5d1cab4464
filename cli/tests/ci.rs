//! The scripts below `.ci`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Runs `.ci/locks` on one workspace, without a network.
fn locks(workspace: &Path) -> Output {
    Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.ci/locks"))
        .arg(workspace)
        .env("CARGO_NET_OFFLINE", "true")
        .output()
        .unwrap()
}

/// Writes a crate of this name, which depends on the crates beside it that are named.
fn write_crate(folder: &Path, name: &str, needs: &[&str]) {
    fs::create_dir_all(folder.join("src")).unwrap();
    fs::write(folder.join("src/lib.rs"), "").unwrap();
    let needs: String =
        needs.iter().map(|name| format!("{name} = {{ path = \"{name}\" }}\n")).collect();
    fs::write(
        folder.join("Cargo.toml"),
        format!(
            "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
             [dependencies]\n{needs}"
        ),
    )
    .unwrap();
}

#[test]
fn stale_lock_file_is_named_and_left_alone() {
    let folder = std::env::temp_dir().join(format!("siga-locks-{}", std::process::id()));
    write_crate(&folder, "top", &["first"]);
    write_crate(&folder.join("first"), "first", &[]);
    let lock = folder.join("Cargo.lock");

    // Without a lock file, as in a repository that ignores it.
    let output = locks(&folder);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(!lock.exists());

    let written = Command::new(env!("CARGO"))
        .args(["generate-lockfile", "--offline", "--manifest-path"])
        .arg(folder.join("Cargo.toml"))
        .output()
        .unwrap();
    assert!(written.status.success(), "{written:?}");
    let output = locks(&folder);
    assert_eq!(output.status.code(), Some(0), "{output:?}");

    // A dependency of a dependency, as when `lab` came to need `disk`.
    write_crate(&folder.join("first"), "first", &["second"]);
    write_crate(&folder.join("first/second"), "second", &[]);
    let before = fs::read(&lock).unwrap();
    let output = locks(&folder);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(&format!("locks: {}/Cargo.lock is not", folder.display())), "{said}");
    assert_eq!(fs::read(&lock).unwrap(), before);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn run_checks_the_lock_files() {
    let run = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../.ci/run")).unwrap();
    assert!(run.lines().any(|line| line == ".ci/locks"));
}
