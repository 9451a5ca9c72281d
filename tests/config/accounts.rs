//! Two spaces never share an account: seen from real credentials, before anything connects.

use std::fs;

use lanekeeper_provision::{AccountSettings, Home, LaneCredentialSettings, SpaceAccount};

use crate::files::{Files, assert_lines, space};

/// A home with the accounts of `alpha` and `beta`, and the credentials of both where the manifest expects them.
struct Mint {
    files: Files,
    home: Home,
    alpha: SpaceAccount,
}

impl Mint {
    fn new() -> Self {
        let files = Files::new();
        let home = Home::create(&files.path("keys")).unwrap();
        let account = |name: &str| home.create_space(&name.parse().unwrap(), &AccountSettings::default()).unwrap();
        let (alpha, beta) = (account("alpha"), account("beta"));
        fs::create_dir(files.path("credentials")).unwrap();
        for account in [&alpha, &beta] {
            let dir = files.path(&format!("credentials/{}", account.name()));
            account.write_lane_credentials(&dir, &home, &LaneCredentialSettings::default()).unwrap();
        }
        files.write("s.toml", format!("{}{}", space("alpha"), space("beta")));
        Self { files, home, alpha }
    }
}

#[test]
fn spaces_with_accounts_of_their_own_are_taken() {
    assert_eq!(Mint::new().files.manifest("s.toml").unwrap().spaces.len(), 2);
}

#[test]
fn two_spaces_on_one_account_are_refused_by_name() {
    let mint = Mint::new();
    // Credentials of their own, other users, one account.
    let dir = mint.files.path("credentials/other");
    mint.alpha.write_lane_credentials(&dir, &mint.home, &LaneCredentialSettings::default()).unwrap();
    let spaces = [space("alpha"), space("beta"), space("other")].concat();
    mint.files.write("s.toml", spaces);
    let line = format!(
        "s.toml:9:15: space `other` has the account of space `alpha` (s.toml:3), {}: two lanes would serve each other's members; give it an account of its own",
        mint.alpha.account_id()
    );
    assert_lines(&mint.files.manifest_faults("s.toml"), &[&line]);
    // Also where they stand in different files, and where one of them is switched off.
    mint.files.write("d/a.toml", space("alpha").replace("credentials/", "../credentials/"));
    mint.files
        .write("d/b.toml", format!("{}enabled = false\n", space("other").replace("credentials/", "../credentials/")));
    let found = mint.files.manifest_faults("d");
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(
        found[0].starts_with("d/b.toml:3:15: space `other` has the account of space `alpha` (d/a.toml:3)"),
        "{found:#?}"
    );
}

#[test]
fn a_bad_credential_is_the_lanes_fault_and_not_the_manifests() {
    let mint = Mint::new();
    let delivery = mint.files.path("credentials/beta/delivery.creds");
    fs::write(&delivery, "garbage\n").unwrap();
    assert_eq!(mint.files.manifest("s.toml").unwrap().spaces.len(), 2);
    fs::remove_file(&delivery).unwrap();
    assert_eq!(mint.files.manifest("s.toml").unwrap().spaces.len(), 2);
    fs::remove_dir_all(mint.files.path("credentials/beta")).unwrap();
    assert_eq!(mint.files.manifest("s.toml").unwrap().spaces.len(), 2);
}

#[test]
fn no_fault_shows_a_secret() {
    let mint = Mint::new();
    let text = fs::read_to_string(mint.files.path("credentials/alpha/delivery.creds")).unwrap();
    let secrets: Vec<&str> = text.lines().filter(|line| line.len() > 40 && !line.starts_with('-')).collect();
    assert_eq!(secrets.len(), 2);
    // A whole credential pasted where its directory belongs, and as the file itself.
    mint.files.write("p.toml", format!("[[space]]\nname = \"\"\"{text}\"\"\"\ncredentials = 5\n"));
    mint.files.write("q.toml", &text);
    for file in ["p.toml", "q.toml"] {
        let shown = mint.files.manifest_faults(file).join("\n");
        for secret in &secrets {
            // The head of a JWT is the same in all of them.
            assert!(!shown.contains(&secret[secret.len() - 30..]) && !shown.contains(&secret[..58]), "{shown}");
        }
    }
}
