// Times in the reader's zone. The server writes <time datetime="…Z">… UTC</time>.

const KEPT = "mqconsole.utc";

/** Whether the reader wants UTC instead of their own zone. */
export function wantsUtc() {
  return kept(KEPT) === "1";
}

/** A value that this browser keeps; null where it keeps nothing. */
export function kept(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

/** Keep a value; "" forgets it. */
export function keep(name, value) {
  try {
    if (value) localStorage.setItem(name, value);
    else localStorage.removeItem(name);
  } catch {
    // A browser that keeps nothing shows the page all the same.
  }
}

/** A time of the wall clock (ms) to the second, as the server writes it. */
export function timeText(ms) {
  const utc = wantsUtc();
  const at = new Date(ms);
  const two = (number) => String(number).padStart(2, "0");
  const day = utc
    ? [at.getUTCFullYear(), two(at.getUTCMonth() + 1), two(at.getUTCDate())]
    : [at.getFullYear(), two(at.getMonth() + 1), two(at.getDate())];
  const clock = utc
    ? [at.getUTCHours(), at.getUTCMinutes(), at.getUTCSeconds()]
    : [at.getHours(), at.getMinutes(), at.getSeconds()];
  return `${day.join("-")} ${clock.map(two).join(":")}${utc ? " UTC" : ""}`;
}

/** A distance from UTC in minutes as +01:00. */
function offsetText(minutes) {
  const two = (number) => String(Math.trunc(number)).padStart(2, "0");
  return `${minutes < 0 ? "−" : "+"}${two(Math.abs(minutes) / 60)}:${two(Math.abs(minutes) % 60)}`;
}

/** Write all times within an element, or a fragment that is not shown yet. */
export function showTimes(root) {
  for (const element of root.querySelectorAll("time[datetime]")) {
    const ms = Date.parse(element.dateTime);
    if (Number.isNaN(ms)) continue;
    element.textContent = timeText(ms);
    element.title = element.dateTime;
  }
  const zone = root.querySelector("#zone");
  if (zone) showZone(zone);
}

function showZone(place) {
  const utc = wantsUtc();
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone || "this computer's zone";
  const own = `${name} (UTC${offsetText(-new Date().getTimezoneOffset())})`;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "link";
  button.textContent = utc ? `Show them in ${own}` : "Show them in UTC";
  button.addEventListener("click", () => {
    keep(KEPT, utc ? "" : "1");
    showTimes(document.body);
    document.dispatchEvent(new Event("zonechange"));
    document.querySelector("#zone button").focus();
  });
  place.replaceChildren(utc ? "Times are UTC. " : `Times are in ${own}. `, button);
}
