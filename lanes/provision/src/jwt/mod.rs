//! NATS JWTs, version 2: encode operator, account, user and generic claims, decode and verify any of them.
//!
//! Owns the byte form of a token. It must not decide what a role may do (`profile`) and must not touch files (`home`).
//!
//! A token is `b64url(header) . b64url(claims) . b64url(signature of the first two parts)`, signed with Ed25519. Public
//! keys and seeds are NATS nkeys.

mod claims;

pub use claims::{
    AccountClaims, AccountLimits, Body, ClaimsKind, GenericClaims, OperatorClaims, Permission, ResponsePermission,
    UserClaims,
};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use data_encoding::BASE32_NOPAD;
use nkeys::KeyPair;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha512_256};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The only header this project writes. Its bytes are the ones every NATS implementation writes.
const HEADER: &str = r#"{"typ":"JWT","alg":"ed25519-nkey"}"#;
/// The algorithm name a version 2 token carries.
const ALGORITHM: &str = "ed25519-nkey";

/// When a token was issued and when it ends, both in whole seconds since the Unix epoch (the resolution of a JWT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// `iat`, seconds since the Unix epoch.
    pub issued_at_s: u64,
    /// `exp`, seconds since the Unix epoch; `None` never ends.
    pub expires_at_s: Option<u64>,
}

impl Validity {
    /// Issued now, without an end.
    pub fn forever() -> Self {
        Self { issued_at_s: now_s(), expires_at_s: None }
    }

    /// Issued now, ending after `ttl` (cut to whole seconds).
    pub fn for_duration(ttl: Duration) -> Self {
        let issued_at_s = now_s();
        Self { issued_at_s, expires_at_s: Some(issued_at_s.saturating_add(ttl.as_secs())) }
    }

    /// Issued now, with an end only if there is a `ttl`.
    pub fn from_ttl(ttl: Option<Duration>) -> Self {
        ttl.map_or_else(Self::forever, Self::for_duration)
    }
}

/// Seconds since the Unix epoch; 0 on a clock set before it.
pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}

/// Why a token could not be written or read. No variant holds the token: a user token is half of a credential.
#[derive(Debug, thiserror::Error)]
pub enum JwtFault {
    /// The signer holds no seed, or refuses to sign.
    #[error("cannot sign a {kind} token: the key of {signer} has no seed")]
    Sign {
        /// What was to be signed.
        kind: &'static str,
        /// Public key of the signer.
        signer: String,
    },
    /// The claims have no JSON form.
    #[error("cannot write {kind} claims as json: {source}")]
    Serialize {
        /// What was to be written.
        kind: &'static str,
        /// The JSON fault.
        source: serde_json::Error,
    },
    /// Not three dot-separated base64url parts.
    #[error("not a token: {0}")]
    Shape(&'static str),
    /// The header or the claims are not the JSON they must be.
    #[error("not a token: the {part} is not what a version 2 token holds: {source}")]
    Json {
        /// `header` or `claims`.
        part: &'static str,
        /// The JSON fault; it names a position, not the text.
        source: serde_json::Error,
    },
    /// The header names another algorithm.
    #[error("token algorithm is not {ALGORITHM}; issue it again with a version 2 encoder")]
    Algorithm,
    /// The issuer is not a public nkey.
    #[error("the token's issuer is not a public nkey")]
    Issuer,
    /// The signature does not belong to the issuer and the content.
    #[error("the token's signature does not match its issuer {0}; it was altered or cut")]
    Signature(String),
}

#[derive(Serialize)]
struct Envelope<'a, B> {
    #[serde(skip_serializing_if = "Option::is_none")]
    exp: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jti: Option<String>,
    iat: u64,
    iss: String,
    name: &'a str,
    sub: &'a str,
    nats: Tagged<'a, B>,
}

#[derive(Serialize)]
struct Tagged<'a, B> {
    #[serde(flatten)]
    body: &'a B,
    r#type: &'static str,
    version: u8,
}

/// Writes and signs a token for `subject` (a public nkey). `name` is for people and logs only.
///
/// # Errors
/// [`JwtFault::Sign`] when `signer` holds no seed, [`JwtFault::Serialize`] when the claims have no JSON form.
pub fn encode<B: Body>(
    name: &str,
    subject: &str,
    body: &B,
    validity: Validity,
    signer: &KeyPair,
) -> Result<String, JwtFault> {
    let kind = B::KIND.as_str();
    let mut envelope = Envelope {
        exp: validity.expires_at_s,
        jti: None,
        iat: validity.issued_at_s,
        iss: signer.public_key(),
        name,
        sub: subject,
        nats: Tagged { body, r#type: kind, version: 2 },
    };
    let unnamed = serde_json::to_vec(&envelope).map_err(|source| JwtFault::Serialize { kind, source })?;
    envelope.jti = Some(BASE32_NOPAD.encode(&Sha512_256::digest(&unnamed)));
    let named = serde_json::to_vec(&envelope).map_err(|source| JwtFault::Serialize { kind, source })?;
    let mut token = URL_SAFE_NO_PAD.encode(HEADER);
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(&named, &mut token);
    let signature = signer.sign(token.as_bytes()).map_err(|_| JwtFault::Sign { kind, signer: signer.public_key() })?;
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(&signature, &mut token);
    Ok(token)
}

/// What a verified token says: the envelope and those parts of the body this project reads.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Claims {
    /// Public key of the signer.
    pub iss: String,
    /// Public key the token is about.
    pub sub: String,
    /// Name for people; may be empty.
    #[serde(default)]
    pub name: String,
    /// Issued at, seconds since the Unix epoch.
    #[serde(default)]
    pub iat: u64,
    /// Ends at, seconds since the Unix epoch; `None` never ends.
    #[serde(default)]
    pub exp: Option<u64>,
    /// Token id.
    #[serde(default)]
    pub jti: String,
    /// The body.
    pub nats: ClaimsBody,
}

/// The body of a verified token.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ClaimsBody {
    /// `operator`, `account`, `user`, `activation` or another type of generic claims.
    #[serde(rename = "type")]
    pub kind: String,
    /// Version of the claims; 2.
    #[serde(default)]
    pub version: u8,
    /// Of a user signed by a signing key: the account it belongs to.
    #[serde(default)]
    pub issuer_account: Option<String>,
    /// Tags, such as `principal:local.ada`.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Of a user: what it may publish.
    #[serde(default, rename = "pub")]
    pub publish: Permission,
    /// Of a user: what it may subscribe to.
    #[serde(default, rename = "sub")]
    pub subscribe: Permission,
    /// Of a user: whether it may connect without proving that it holds the seed.
    #[serde(default)]
    pub bearer_token: bool,
    /// Of an account: users cut off, with the second up to which their tokens are void.
    #[serde(default)]
    pub revocations: std::collections::BTreeMap<String, u64>,
}

impl Claims {
    /// The account a user token belongs to: `issuer_account` when a signing key issued it, else the issuer itself.
    pub fn account(&self) -> &str {
        self.nats.issuer_account.as_deref().unwrap_or(&self.iss)
    }

    /// The value of the first tag that starts with `<key>:`.
    pub fn tag(&self, key: &str) -> Option<&str> {
        self.nats.tags.iter().find_map(|tag| tag.strip_prefix(key)?.strip_prefix(':'))
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
}

/// Reads a token and checks its signature against the issuer it names. It does not check times, nor whether the issuer
/// is one to trust: the caller knows which keys those are.
///
/// # Errors
/// Each way a text can fail to be a signed version 2 token is a variant of [`JwtFault`].
pub fn decode(token: &str) -> Result<Claims, JwtFault> {
    let (signed, signature) = token.rsplit_once('.').ok_or(JwtFault::Shape("it has no dots"))?;
    let (header, claims) = signed.split_once('.').ok_or(JwtFault::Shape("it has fewer than three parts"))?;
    if claims.contains('.') {
        return Err(JwtFault::Shape("it has more than three parts"));
    }
    let part = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| JwtFault::Shape("a part is not base64url"));
    let header: Header =
        serde_json::from_slice(&part(header)?).map_err(|source| JwtFault::Json { part: "header", source })?;
    if header.alg != ALGORITHM {
        return Err(JwtFault::Algorithm);
    }
    let claims: Claims =
        serde_json::from_slice(&part(claims)?).map_err(|source| JwtFault::Json { part: "claims", source })?;
    let issuer = KeyPair::from_public_key(&claims.iss).map_err(|_| JwtFault::Issuer)?;
    issuer.verify(signed.as_bytes(), &part(signature)?).map_err(|_| JwtFault::Signature(claims.iss.clone()))?;
    Ok(claims)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn user_token(signer: &KeyPair) -> String {
        let user = KeyPair::new_user();
        let rows = Permission { allow: vec!["a.>".to_owned()], deny: vec![] };
        let mut claims = UserClaims::new(rows.clone(), rows, "AACCOUNT");
        claims.tags = vec!["owner:local".to_owned(), "principal:local.ada".to_owned()];
        encode("ada", &user.public_key(), &claims, Validity { issued_at_s: 5, expires_at_s: Some(9) }, signer).unwrap()
    }

    /// A token with this header and these claims, properly signed.
    fn signed(header: &str, claims: &serde_json::Value, signer: &KeyPair) -> String {
        let content = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims.to_string()));
        let signature = URL_SAFE_NO_PAD.encode(signer.sign(content.as_bytes()).unwrap());
        format!("{content}.{signature}")
    }

    #[test]
    fn what_is_written_is_read() {
        let signer = KeyPair::new_account();
        let claims = decode(&user_token(&signer)).unwrap();
        assert_eq!((claims.iss.as_str(), claims.name.as_str()), (signer.public_key().as_str(), "ada"));
        assert_eq!((claims.iat, claims.exp, claims.nats.version), (5, Some(9), 2));
        assert_eq!((claims.account(), claims.nats.kind.as_str()), ("AACCOUNT", "user"));
        assert_eq!(claims.nats.publish.allow, ["a.>"]);
        assert!(!claims.nats.bearer_token);
        assert_eq!(
            (claims.tag("principal"), claims.tag("owner"), claims.tag("own")),
            (Some("local.ada"), Some("local"), None)
        );
    }

    #[test]
    fn an_altered_token_is_refused() {
        let token = user_token(&KeyPair::new_account());
        let parts: Vec<&str> = token.split('.').collect();
        let other = user_token(&KeyPair::new_account());
        let foreign: Vec<&str> = other.split('.').collect();
        for altered in [
            format!("{}.{}.{}", parts[0], foreign[1], parts[2]),
            format!("{}.{}.{}", parts[0], parts[1], foreign[2]),
            format!("{}.{}.{}", parts[0], parts[1], &parts[2][..40]),
        ] {
            assert!(matches!(decode(&altered), Err(JwtFault::Signature(_))), "{altered}");
        }
    }

    #[test]
    fn what_is_no_token_is_refused_without_a_word_of_it() {
        let signer = KeyPair::new_account();
        let claims = json!({ "iss": signer.public_key(), "sub": "U", "nats": { "type": "user", "version": 2 } });
        let header = r#"{"typ":"JWT","alg":"ed25519-nkey"}"#;
        assert!(decode(&signed(header, &claims, &signer)).is_ok());
        let none = r#"{"typ":"JWT","alg":"none"}"#;
        assert!(matches!(decode(&signed(none, &claims, &signer)), Err(JwtFault::Algorithm)));
        let lost = json!({ "iss": "nobody", "sub": "U", "nats": { "type": "user" } });
        assert!(matches!(decode(&signed(header, &lost, &signer)), Err(JwtFault::Issuer)));
        assert!(matches!(decode(&signed(header, &json!(7), &signer)), Err(JwtFault::Json { part: "claims", .. })));
        assert!(matches!(decode(&signed("{", &claims, &signer)), Err(JwtFault::Json { part: "header", .. })));
        for text in ["", ".", "..", "secret", "secret.secret", "a.b.c.d", "secret.$$$.secret", "\u{e9}.\u{e9}.\u{e9}"] {
            let fault = decode(text).unwrap_err();
            assert!(!fault.to_string().contains("secret") && !fault.to_string().contains('\n'), "{fault}");
        }
    }

    #[test]
    fn a_public_key_cannot_sign() {
        let public = KeyPair::from_public_key(&KeyPair::new_account().public_key()).unwrap();
        let fault = encode("x", "A", &AccountClaims::default(), Validity::forever(), &public).unwrap_err();
        assert!(matches!(fault, JwtFault::Sign { kind: "account", .. }));
    }

    #[test]
    fn every_account_limit_is_written() {
        let written = serde_json::to_value(AccountClaims::default()).unwrap();
        // A limit that is missing is read as none at all.
        let limits = [
            "subs",
            "data",
            "payload",
            "imports",
            "exports",
            "wildcards",
            "conn",
            "leaf",
            "disallow_bearer",
            "mem_storage",
            "disk_storage",
            "streams",
            "consumer",
            "max_ack_pending",
            "mem_max_stream_bytes",
            "disk_max_stream_bytes",
            "max_bytes_required",
        ];
        assert_eq!(written["limits"].as_object().unwrap().keys().collect::<Vec<_>>(), limits);
    }
}
