//! What can be asked of the admin server, and the JSON it answers with.
//!
//! Owns paths, methods, statuses and the wording of refusals. It must not decide who may ask.

use std::time::Duration;

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, FromRequest, Path, Query, Request, State},
    http::{
        Method, StatusCode, Uri,
        header::{CACHE_CONTROL, HeaderValue},
    },
    middleware::{from_fn_with_state, map_response},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use lanekeeper_wire::Space;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::timeout;

use super::{
    Answer, Desk, Order, Refusal,
    gate::{self, Gate},
};
use crate::supervisor::status::{HostStatus, LaneState, LaneStatus, Outcome};

/// How long an order may take before it is answered that it goes on.
const ORDER_PATIENCE: Duration = Duration::from_secs(30);
/// Orders have no body; what is larger than this is not even read.
const MAX_BODY_BYTES: usize = 1024;

const GONE: &str = "nobody supervises the lanes: the host stops, or its supervisor has ended or hangs; if it does not stop, restart the process, its log says why";

/// The whole server behind its gate.
pub(super) fn router(desk: Desk, gate: Gate) -> Router {
    Router::new()
        .route(gate::OPEN_PATH, get(alive))
        .route("/readyz", get(ready))
        .route("/lanes", get(lanes))
        .route("/lanes/{space}", get(lane))
        .route("/lanes/{space}/reopen", post(reopen))
        .route("/lanes/{space}/unpark", post(unpark))
        .route("/lanes/{space}/drain", post(drain))
        .route("/lanes/{space}/undrain", post(undrain))
        .route("/reload", post(reload))
        .route("/drain", post(drain_all))
        .route("/undrain", post(undrain_all))
        .fallback(no_such_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(map_response(not_cached))
        .layer(from_fn_with_state(gate, gate::pass))
        .with_state(desk)
}

/// A refusal as a response.
pub(super) fn refuse(status: StatusCode, error: impl Into<String>) -> Response {
    (status, Json(Refusal::new(error.into()))).into_response()
}

async fn not_cached(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn no_such_path(uri: Uri) -> Response {
    let error = format!(
        "there is no {}; ask /healthz, /readyz, /lanes, /lanes/SPACE, or post to /reload, /drain, /undrain, /lanes/SPACE/reopen, unpark, drain or undrain",
        uri.path()
    );
    refuse(StatusCode::NOT_FOUND, error)
}

async fn wrong_method(method: Method, uri: Uri) -> Response {
    let other = if method == Method::POST { "GET" } else { "POST" };
    refuse(StatusCode::METHOD_NOT_ALLOWED, format!("{} does not take {method}; use {other}", uri.path()))
}

/// Whether the process does its work at all; a lane that is down is no reason to restart it.
async fn alive(State(desk): State<Desk>) -> Response {
    match desk.live().await {
        Some(_) => Json(json!({ "status": "alive", "version": env!("CARGO_PKG_VERSION") })).into_response(),
        None => refuse(StatusCode::SERVICE_UNAVAILABLE, GONE),
    }
}

/// A lane that does not serve, for whoever looks at readiness.
#[derive(Debug, Serialize)]
struct Down<'a> {
    space: &'a Space,
    state: LaneState,
    reason: &'a str,
    code: Option<&'a str>,
}

impl<'a> From<&'a LaneStatus> for Down<'a> {
    fn from(lane: &'a LaneStatus) -> Self {
        let code = lane.last_fault.as_ref().map(|fault| fault.code.as_str());
        Self { space: &lane.space, state: lane.state, reason: &lane.reason, code }
    }
}

/// Whether every lane was attempted once. One that was and does not serve is named, and does not take the host out of
/// service: its neighbours serve.
async fn ready(State(desk): State<Desk>) -> Response {
    let Some(host) = desk.live().await else { return refuse(StatusCode::SERVICE_UNAVAILABLE, GONE) };
    let (serving, standby) = (host.count(LaneState::Serving), host.count(LaneState::Standby));
    if !host.ready {
        let waiting: Vec<Down<'_>> = host.lanes.iter().filter(|lane| lane.generation == 0).map(Down::from).collect();
        let body = json!({ "error": not_ready(&host, waiting.len()), "ready": false, "waiting": waiting });
        return (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response();
    }
    let is_up = |lane: &LaneStatus| matches!(lane.state, LaneState::Serving | LaneState::Standby);
    // What was drained is down because somebody said so.
    let is_down = |lane: &&LaneStatus| !is_up(lane) && !lane.drained;
    let down: Vec<Down<'_>> = host.lanes.iter().filter(is_down).map(Down::from).collect();
    let lanes = host.lanes.len();
    Json(json!({ "ready": true, "lanes": lanes, "serving": serving, "standby": standby, "down": down })).into_response()
}

fn not_ready(host: &HostStatus, waiting: usize) -> String {
    if !host.lanes.is_empty() {
        return format!("{waiting} of {} lanes were not attempted yet; wait, or look at /lanes", host.lanes.len());
    }
    let refused =
        host.last_reload.as_ref().filter(|outcome| !outcome.applied).map(|outcome| outcome.refused.as_slice());
    match refused {
        Some([(what, why), rest @ ..]) => {
            let more = if rest.is_empty() { String::new() } else { format!("; and {} more", rest.len()) };
            format!("no manifest was applied yet: {what}: {why}{more}")
        }
        Some([]) | None => "no manifest was applied yet; wait, or look at the log".to_owned(),
    }
}

async fn lanes(State(desk): State<Desk>) -> Response {
    match desk.look() {
        Some(host) => Json::<&HostStatus>(&host).into_response(),
        None => refuse(StatusCode::SERVICE_UNAVAILABLE, GONE),
    }
}

async fn lane(State(desk): State<Desk>, Path(space): Path<String>) -> Response {
    let space = match parsed(&space) {
        Ok(space) => space,
        Err(refused) => return *refused,
    };
    let Some(host) = desk.look() else { return refuse(StatusCode::SERVICE_UNAVAILABLE, GONE) };
    host.lane(&space).map_or_else(|| no_lane(&space), |lane| Json(lane).into_response())
}

/// A name that no space can have is the name of no lane.
fn parsed(space: &str) -> Result<Space, Box<Response>> {
    space.parse().map_err(|fault| Box::new(refuse(StatusCode::NOT_FOUND, format!("there is no such lane: {fault}"))))
}

fn no_lane(space: &Space) -> Response {
    refuse(StatusCode::NOT_FOUND, format!("there is no lane `{space}`; /lanes lists them, the manifest names them"))
}

/// An order without a body. It has none, so that nobody believes that something in it was read.
struct NoBody;

impl<S: Send + Sync> FromRequest<S> for NoBody {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let refused = |status, why: &str| refuse(status, format!("an order has no body, {why}; send none"));
        match Bytes::from_request(request, state).await {
            Ok(body) if body.is_empty() => Ok(Self),
            Ok(_) => Err(refused(StatusCode::BAD_REQUEST, "this one has")),
            Err(error) => Err(refused(error.status(), "and this one cannot be read")),
        }
    }
}

/// An order with neither query nor body: a query that nobody reads could be the one that was meant to narrow it.
struct Bare;

impl<S: Send + Sync> FromRequest<S> for Bare {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        if request.uri().query().is_some_and(|query| !query.is_empty()) {
            let error = "this order has no query, nothing would read it; name the space in the path";
            return Err(refuse(StatusCode::BAD_REQUEST, error));
        }
        NoBody::from_request(request, state).await.map(|NoBody| Self)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ReloadQuery {
    allow_mass_close: bool,
}

async fn reload(State(desk): State<Desk>, uri: Uri, _: NoBody) -> Response {
    let query = Query::<ReloadQuery>::try_from_uri(&uri);
    let Ok(Query(ReloadQuery { allow_mass_close })) = query else {
        let error = "/reload takes no query but `allow_mass_close=true` or `allow_mass_close=false`; correct it";
        return refuse(StatusCode::BAD_REQUEST, error);
    };
    order(&desk, Order::Reload { allow_mass_close }).await
}

async fn reopen(State(desk): State<Desk>, Path(space): Path<String>, _: Bare) -> Response {
    lane_order(&desk, &space, Order::Reopen).await
}

async fn unpark(State(desk): State<Desk>, Path(space): Path<String>, _: Bare) -> Response {
    lane_order(&desk, &space, Order::Unpark).await
}

async fn drain(State(desk): State<Desk>, Path(space): Path<String>, _: Bare) -> Response {
    lane_order(&desk, &space, |space| Order::Drain(Some(space))).await
}

async fn undrain(State(desk): State<Desk>, Path(space): Path<String>, _: Bare) -> Response {
    lane_order(&desk, &space, |space| Order::Undrain(Some(space))).await
}

async fn drain_all(State(desk): State<Desk>, _: Bare) -> Response {
    order(&desk, Order::Drain(None)).await
}

async fn undrain_all(State(desk): State<Desk>, _: Bare) -> Response {
    order(&desk, Order::Undrain(None)).await
}

async fn lane_order(desk: &Desk, space: &str, of: impl FnOnce(Space) -> Order) -> Response {
    match parsed(space) {
        Ok(space) => order(desk, of(space)).await,
        Err(refused) => *refused,
    }
}

/// Gives an order that is carried out even if whoever gave it goes away meanwhile.
async fn order(desk: &Desk, order: Order) -> Response {
    tracing::info!(?order, "ordered through the admin server");
    let desk = desk.clone();
    let taken = tokio::spawn(async move { desk.take(order).await });
    let Ok(answer) = timeout(ORDER_PATIENCE, taken).await else {
        let error = format!("not done within {} s, it goes on; look at /lanes", ORDER_PATIENCE.as_secs());
        return refuse(StatusCode::GATEWAY_TIMEOUT, error);
    };
    match answer {
        Ok(Answer::Taken(lanes)) => (StatusCode::ACCEPTED, Json(json!({ "lanes": lanes }))).into_response(),
        Ok(Answer::Reloaded(outcome)) => reloaded(outcome),
        Ok(Answer::NoLane(space)) => no_lane(&space),
        Ok(Answer::Refused(error)) => refuse(StatusCode::CONFLICT, error),
        Ok(Answer::Gone) => refuse(StatusCode::SERVICE_UNAVAILABLE, GONE),
        Err(error) => {
            tracing::error!(%error, "an order was lost");
            refuse(StatusCode::INTERNAL_SERVER_ERROR, "the order was lost, which is a defect; the log says where")
        }
    }
}

fn reloaded(outcome: Box<Outcome>) -> Response {
    if outcome.applied {
        return Json(outcome).into_response();
    }
    let error = "nothing was changed: the manifest was refused; mend what is listed and reload again".to_owned();
    let refusal = Refusal { error, outcome: Some(outcome) };
    (StatusCode::UNPROCESSABLE_ENTITY, Json(refusal)).into_response()
}
