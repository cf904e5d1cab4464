//! `siga up`, as a shell sees it.

use std::process::Command;

#[test]
fn file_that_is_no_socket_is_refused_in_one_line_and_left_alone() {
    let file = std::env::temp_dir().join(format!("siga-notes-{}.txt", std::process::id()));
    std::fs::write(&file, "notes").unwrap();
    let up = Command::new(env!("CARGO_BIN_EXE_siga")).arg("up").arg("--socket").arg(&file).output();
    let up = up.unwrap();
    assert_eq!((up.status.code(), up.stdout.as_slice()), (Some(1), &b""[..]));
    let what = "an ordinary file is there: name a place where nothing is, or where a host was";
    let line = format!("siga: cannot listen at {}: {what}\n", file.display());
    assert_eq!(String::from_utf8(up.stderr).unwrap(), line);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "notes");
    std::fs::remove_file(file).unwrap();
}

#[test]
fn what_is_wrong_in_a_file_is_said_once() {
    let file = std::env::temp_dir().join(format!("siga-wrong-{}.toml", std::process::id()));
    for (text, what) in [
        (
            "number = 1\n",
            ":1: unknown field `number`: must be one of `host`, `guest`, `lan`, `control_unit`, `volume`",
        ),
        ("\n[[guest]]\nname = 7\n", ":3: "),
    ] {
        std::fs::write(&file, text).unwrap();
        let up = Command::new(env!("CARGO_BIN_EXE_siga")).arg("up").arg(&file).output().unwrap();
        assert_eq!(up.status.code(), Some(2));
        let said = String::from_utf8(up.stderr).unwrap();
        assert!(said.starts_with(&format!("{}{what}", file.display())), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    std::fs::remove_file(file).unwrap();
}
