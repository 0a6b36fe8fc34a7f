import { render } from "preact";
import { App } from "./app";
import { startTheme } from "./parts/theme";
import { listen } from "./router";
import "./style/page.css";

startTheme();
listen();
render(<App />, document.getElementById("app")!);
